"""``arachne workload`` and ``arachne cluster``."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_a_manifest_is_scanned(arachne: Run, manifest: Path) -> None:
    code, out, _ = arachne("workload", "scan", manifest, "--format", "json")
    body = json.loads(out)
    assert code == 0
    assert body["clips"] == 6
    assert sum(row["clips"] for row in body["shapes"]) == 6


def test_clips_without_a_bucket_are_named_and_counted(
    arachne: Run, manifest: Path, tmp_path: Path
) -> None:
    buckets = tmp_path / "buckets.json"
    rows = [{"frames": 17, "height": 64, "width": 64, "batch": 2}]
    buckets.write_text(
        json.dumps({"format": "arachne.buckets/1", "name": "small", "buckets": rows})
    )
    code, _, err = arachne("workload", "scan", manifest, "--buckets", buckets)
    assert code == 2
    assert "e (1x128x128)" in err
    code, _, err = arachne("workload", "show", manifest, "--buckets", buckets)
    assert code == 2
    assert "--drop-refused" in err
    code, out, err = arachne("workload", "show", manifest, "--buckets", buckets, "--drop-refused")
    assert code == 0
    assert "dropped" in err
    assert "5 clips" in out


def test_iterations_are_shown(arachne: Run, manifest: Path) -> None:
    code, out, _ = arachne("workload", "show", manifest, "--iteration-size", 2, "--format", "json")
    assert code == 0
    assert len(json.loads(out)["iterations"]) == 3
    code, _, err = arachne("workload", "show", manifest, "--iterations", "9:")
    assert code == 2
    assert "0:1" in err


def test_a_cluster_is_validated_and_shown(arachne: Run) -> None:
    code, out, _ = arachne("cluster", "validate", "H100-80:8x4, A100-80:8x2")
    assert code == 0
    assert "48 devices" in out
    code, out, _ = arachne("cluster", "show", "H100-80:8x4")
    assert code == 0
    assert "penalty" in out
    code, out, _ = arachne("cluster", "show", "H100-80:8x4", "--format", "json")
    assert json.loads(out)["format"] == "arachne.cluster/1"


def test_the_database_is_upgraded_and_checked(arachne: Run) -> None:
    assert arachne("db", "upgrade")[0] == 0
    code, out, _ = arachne("db", "current")
    assert code == 0
    assert "database" in out
    assert arachne("db", "check")[1] == "ok\n"
