"""Plans written in the forms of other trainers."""
