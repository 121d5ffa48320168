"""arachne-opt: plan a training iteration as an integer program, prove it, keep it, replay it."""

from pathlib import Path

__version__ = "0.1.0"

# In a checkout solvers/, executor/ and db/ stand beside this folder, in a wheel inside it.
_HERE = Path(__file__).resolve().parent
if not (_HERE / "solvers").is_dir():
    __path__.append(str(_HERE.parent))
