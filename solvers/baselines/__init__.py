"""The rules of peers, as plans to compare with."""
