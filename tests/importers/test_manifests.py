"""Data sets of trainers become manifests; the fixtures are ours, in the shape of theirs."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from arachne_opt.errors import InputError
from arachne_opt.importers.manifests import MANIFEST_FORMATS, recognise_manifest
from arachne_opt.importers.media import Imported, ImportOptions
from arachne_opt.manifest import read_manifest, write_manifest
from arachne_opt.workload import Shape


@dataclass(frozen=True)
class Facts:
    """What the fake decoder says of every file."""

    frames: int = 49
    height: int = 480
    width: int = 832
    fps: float = 16.0


def probe(path: str, where: str) -> Facts:
    if "broken" in path:
        raise InputError(f"cannot decode {path}", where=where)
    return Facts()


def imported(source: Path, name: str, *, fps: float | None = None, read: bool = True) -> Imported:
    options = ImportOptions(probe=probe if read else None, fps=fps)
    return MANIFEST_FORMATS[name].read(source, options)


def put(folder: Path, **files: str) -> Path:
    """Writes files named by key, with __ for a dot, and gives the folder."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


OPEN_SORA = (
    "path,text,num_frames,height,width,aspect_ratio,fps,resolution\n"
    'v/a.mp4,"a kite, red",102,720,1280,0.5625,24.0,921600\n'
    "v/b.mp4,a dog,33,360,640,0.5625,30.0,230400\n"
    "i/c.jpg,snow,1,512,512,1.0,inf,262144\n"
)


def test_open_sora_csv(tmp_path: Path):
    file = put(tmp_path, meta__csv=OPEN_SORA) / "meta.csv"
    assert recognise_manifest(file) == ("open-sora", "columns path and text")
    found = imported(file, "open-sora", read=False)
    assert [str(c.shape) for c in found.clips] == ["102x720x1280", "33x360x640", "1x512x512"]
    assert [c.fps for c in found.clips] == [24.0, 30.0, 0.0]
    assert found.clips[0].path == str(tmp_path / "v/a.mp4")
    assert found.clips[0].caption == "a kite, red"
    assert not found.skipped


def test_open_sora_parquet_has_the_same_clips(tmp_path: Path):
    pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    import pyarrow
    import pyarrow.parquet

    table = {
        "path": ["v/a.mp4"],
        "text": ["a kite, red"],
        "num_frames": [102],
        "height": [720],
        "width": [1280],
        "fps": [24.0],
    }
    file = tmp_path / "meta.parquet"
    pyarrow.parquet.write_table(pyarrow.table(table), file)
    assert recognise_manifest(file)[0] == "open-sora"
    csv = put(tmp_path, meta__csv=OPEN_SORA) / "meta.csv"
    assert imported(file, "open-sora").clips == imported(csv, "open-sora").clips[:1]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("v/x.mp4,t,0,720,1280,0,24,0", ":5: num_frames must be at least 1, not 0"),
        ("v/x.mp4,t,many,720,1280,0,24,0", ":5: num_frames must be a number, not 'many'"),
        ("v/x.mp4,t,49,720,1280", ":5: 5 fields, the header has 8"),
        (",t,49,720,1280,0,24,0", ":5: path is empty"),
        ("v/x.mp4,t,49,72.5,1280,0,24,0", ":5: height must be a whole number, not '72.5'"),
        ("v/x.mp4,t,49,720,1280,0,fast,0", ":5: fps must be a number, not 'fast'"),
        ("v/x.mp4,t,49,,1280,0,24,0", ":5: the file"),
    ],
)
def test_a_bad_row_of_open_sora_is_counted_with_its_line(tmp_path: Path, row: str, reason: str):
    file = put(tmp_path, meta__csv=OPEN_SORA + row + "\n") / "meta.csv"
    found = imported(file, "open-sora")
    assert len(found.clips) == 3
    (skipped,) = found.skipped
    assert f"{skipped.where}: {skipped.reason}".startswith(f"{file}{reason}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"meta.csv:1: the file has no header"),
        ("path,path\n", r"meta.csv:1: the column 'path' is there twice"),
        ('path,text\n"a,b\n', r"meta.csv:2: no valid CSV"),
        ("paths,text\na.mp4,b\n", r"meta.csv:2: 'path' is missing \(did you mean 'paths'"),
        ("path,text\n", "there is not a single clip"),
    ],
)
def test_an_unusable_open_sora_file_is_explained(tmp_path: Path, text: str, message: str):
    file = put(tmp_path, meta__csv=text) / "meta.csv"
    with pytest.raises(InputError, match=message) as caught:
        imported(file, "open-sora")
    assert caught.value.exit_code == 2


# finetrainers


def test_finetrainers_configuration_with_metadata(tmp_path: Path):
    put(tmp_path / "set", metadata__csv='file_name,caption\n0.mp4,"a cat"\n1.mp4,a dog\n')
    (tmp_path / "set" / "0.mp4").touch()
    (tmp_path / "set" / "1.mp4").touch()
    config = {"datasets": [{"data_root": "set", "dataset_type": "video", "id_token": "AFKX"}]}
    file = put(tmp_path, train__json=json.dumps(config)) / "train.json"
    assert recognise_manifest(file) == ("finetrainers", "datasets with a data_root")
    found = imported(file, "finetrainers")
    assert [c.caption for c in found.clips] == ["AFKX a cat", "AFKX a dog"]
    assert {c.shape for c in found.clips} == {Shape(frames=49, height=480, width=832)}
    assert found.clips[0].fps == 16.0


def test_finetrainers_lists_pairs_and_lines_give_the_same_clips(tmp_path: Path):
    lists = put(tmp_path / "a", prompts__txt="a cat\na dog\n", videos__txt="0.mp4\n1.mp4\n")
    pairs = put(tmp_path / "b", **{"0__txt": "a cat\n", "1__txt": "a dog"})
    rows = [{"file_name": "0.mp4", "caption": "a cat"}, {"file_name": "1.mp4", "caption": "a dog"}]
    lines = put(tmp_path / "c", metadata__jsonl="\n".join(map(json.dumps, rows)))
    whole = put(tmp_path / "d", metadata__json=json.dumps({"data": rows}))
    for folder in (lists, pairs, lines, whole):
        for name in ("0.mp4", "1.mp4"):
            (folder / name).touch()
        assert recognise_manifest(folder)[0] == "finetrainers"
        clips = imported(folder, "finetrainers").clips
        assert [(c.id, c.caption) for c in clips] == [("0", "a cat"), ("1", "a dog")]


def test_files_that_are_no_clips_are_named(tmp_path: Path):
    folder = put(tmp_path / "a", **{"0__txt": "a cat", "lost__txt": "x", "notes__md": "y"})
    for name in ("0.mp4", "1.mp4"):
        (folder / name).touch()
    found = imported(folder, "finetrainers")
    assert len(found.clips) == 2
    assert any("notes.md" in note for note in found.notes)
    assert any("lost.txt" in note for note in found.notes)
    assert any("1.mp4" in note and "no caption" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"datasets": [', r"t.json:1: no valid JSON"),
        ('{"data": []}', r"t.json:1: 'datasets' is missing"),
        ('{"datasets":\n []}', r"t.json:1: no data set is listed"),
        ('{"datasets": [\n{"dataset_type": "video"}]}', r"t.json:2: 'data_root' is missing"),
        ('{"datasets": [\n{\n"data_root": 5}]}', r"t.json:3: data_root must be a text, not 5"),
        ('{"datasets": [\n{\n"data_root": "gone"}]}', r"t.json:3: the folder .*gone is not there"),
        ('{"datasets": [\n{\n"data_root": "empty"}]}', r"t.json:3: .*empty holds no data set"),
        ('{"datasets": {"data_root": "."}}', r"t.json:1: datasets must be a list, not a table"),
    ],
)
def test_an_unusable_finetrainers_file_is_explained(tmp_path: Path, text: str, message: str):
    (tmp_path / "empty").mkdir()
    file = put(tmp_path, t__json=text) / "t.json"
    with pytest.raises(InputError, match=message):
        imported(file, "finetrainers")


def test_lists_of_unequal_length_are_refused(tmp_path: Path):
    folder = put(tmp_path / "a", prompts__txt="a\n", videos__txt="0.mp4\n1.mp4\n")
    with pytest.raises(InputError, match=r"prompts.txt:1: 2 files .* but 1 captions"):
        imported(folder, "finetrainers")


# diffusion-pipe


def pipe(folder: Path, body: str, *names: str) -> Path:
    """A dataset file with one directory of empty files."""
    (folder / "clips").mkdir()
    for name in names:
        (folder / "clips" / name).touch()
    return put(folder, set__toml=body) / "set.toml"


def test_diffusion_pipe_counts_repeats(tmp_path: Path):
    body = "resolutions = [512]\n[[directory]]\npath = 'clips'\nnum_repeats = 2\n"
    file = pipe(tmp_path, body, "a.mp4", "b.png")
    put(tmp_path / "clips", a__txt="a cat", b__txt="a dog")
    assert recognise_manifest(file) == ("diffusion-pipe", "[[directory]] tables")
    found = imported(file, "diffusion-pipe")
    assert [c.id for c in found.clips] == ["a", "b", "a-2", "b-2"]
    assert [c.shape.frames for c in found.clips] == [49, 1, 49, 1]
    assert found.clips[3].caption == "a dog"


def test_a_part_of_a_repeat_says_what_it_leaves_out(tmp_path: Path):
    body = "[[directory]]\npath = 'clips'\nnum_repeats = 0.5\n"
    file = pipe(tmp_path, body, "a.mp4", "b.mp4", "c.mp4")
    found = imported(file, "diffusion-pipe")
    assert len(found.clips) == 1
    assert any("set.toml:3: num_repeats = 0.5 leaves out 2 clips of 3" in n for n in found.notes)


def test_captions_may_lie_in_one_file(tmp_path: Path):
    file = pipe(tmp_path, "[[directory]]\npath = 'clips'\n", "a.mp4")
    put(tmp_path / "clips", captions__json='{"a.mp4": ["cat", "a cat"],\n"gone.mp4": "x"}')
    found = imported(file, "diffusion-pipe")
    assert found.clips[0].caption == "a cat"
    (skipped,) = found.skipped
    assert skipped.where.endswith("captions.json:2")
    assert recognise_manifest(tmp_path / "clips")[0] == "diffusion-pipe"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[[directory]\n", r"set.toml:1: no valid TOML"),
        ("resolutions = [512]\n", r"set.toml:1: 'directory' is missing"),
        ("x = 1\n\n[[directory]]\npat = 'clips'\n", r"set.toml:3: 'path' is missing.*'pat'"),
        ("[[directory]]\npath = 3\n", r"set.toml:2: path must be a text, not 3"),
        ("[[directory]]\npath = 'gone'\n", r"set.toml:2: the directory .*gone is not there"),
        ("[[directory]]\npath = 'clips'\nnum_repeats = 0\n", r"set.toml:3: num_repeats must be"),
        ("[[directory]]\npath = 'clips'\nnum_repeats = 'x'\n", r"set.toml:3: num_repeats must be"),
        ("directory = []\n", r"set.toml:1: no \[\[directory\]\] is given"),
    ],
)
def test_an_unusable_diffusion_pipe_file_is_explained(tmp_path: Path, body: str, message: str):
    file = pipe(tmp_path, body, "a.mp4")
    with pytest.raises(InputError, match=message):
        imported(file, "diffusion-pipe")


# musubi-tuner

MUSUBI = """[general]
resolution = [960, 544]
caption_extension = ".cap"
batch_size = 2

[[datasets]]
video_directory = "clips"
target_frames = [1, 25, 46]
"""


def musubi(folder: Path, more: str = "") -> Path:
    (folder / "clips").mkdir()
    (folder / "clips" / "a.mp4").touch()
    (folder / "clips" / "a.cap").write_text("a cat")
    return put(folder, set__toml=MUSUBI + more) / "set.toml"


def test_musubi_takes_one_sample_of_each_length(tmp_path: Path):
    file = musubi(tmp_path)
    assert recognise_manifest(file) == ("musubi", "[[datasets]] tables")
    found = imported(file, "musubi")
    assert [c.shape.frames for c in found.clips] == [1, 25, 45]
    assert {c.caption for c in found.clips} == {"a cat"}


@pytest.mark.parametrize(
    ("more", "frames"),
    [
        ('frame_extraction = "chunk"\n', [1] * 49 + [25, 45]),
        ('frame_extraction = "slide"\nframe_stride = 12\n', [1] * 5 + [25] * 3 + [45]),
        ('frame_extraction = "uniform"\nframe_sample = 2\n', [1, 1, 25, 25, 45, 45]),
        ('frame_extraction = "full"\nmax_frames = 40\n', [37]),
        ('frame_extraction = "full"\n', [49]),
        ("num_repeats = 2\n", [1, 25, 45, 1, 25, 45]),
    ],
)
def test_musubi_extractions(tmp_path: Path, more: str, frames: list[int]):
    found = imported(musubi(tmp_path, more), "musubi")
    assert [c.shape.frames for c in found.clips] == frames


def test_a_source_rate_needs_the_rate_of_the_model(tmp_path: Path):
    file = musubi(tmp_path, "source_fps = 32.0\n")
    with pytest.raises(InputError, match=r"set.toml:9: source_fps resamples .*--fps 16 for Wan"):
        imported(file, "musubi")


def test_a_source_rate_counts_frames_as_training_will(tmp_path: Path):
    from arachne_opt.frame_rate import at_frame_rate

    found = imported(musubi(tmp_path, "source_fps = 32.0\n"), "musubi", fps=16.0)
    assert [c.shape.frames for c in at_frame_rate(found.clips, 16.0)] == [1, 25]
    assert any("train with --fps 16" in note for note in found.notes)


def test_a_video_shorter_than_all_targets_is_counted(tmp_path: Path):
    file = musubi(tmp_path)
    file.write_text(file.read_text().replace("[1, 25, 46]", "[81]"))
    found = imported(file, "musubi")
    assert not found.clips
    assert found.skipped[0].reason == "49 frames, the shortest target has 81"


def test_musubi_lines_are_resolved_beside_their_file(tmp_path: Path):
    (tmp_path / "a.mp4").touch()
    (tmp_path / "frames").mkdir()
    rows = ['{"video_path": "a.mp4", "caption": "a cat"}', "", "{", '{"video_path": "frames"}']
    file = put(tmp_path, meta__jsonl="\n".join(rows)) / "meta.jsonl"
    assert recognise_manifest(file)[0] == "musubi"
    found = imported(file, "musubi")
    assert [c.path for c in found.clips] == [str(tmp_path / "a.mp4")]
    assert [s.where.rpartition(":")[2] for s in found.skipped] == ["3", "4"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("target_frames = [1]\n", r"set.toml:9: no valid TOML"),
        ('frame_extraction = "heads"\n', r"set.toml:9: unknown frame_extraction 'heads' \(did you"),
        ('frame_extraction = "slide"\nframe_stride = 0\n', r"set.toml:10: frame_stride must be at"),
        ("[[datasets]]\ntarget_frames = [1]\n", r"set.toml:9: 'video_directory' or .* is missing"),
        ('[[datasets]]\nvideo_directory = "x"\n', r"set.toml:10: the directory .*x is not there"),
        ('[[datasets]]\nvideo_jsonl_file = "x"\n', r"set.toml:10: the file .*x is not there"),
        ("num_repeats = 0\n", r"set.toml:9: num_repeats must be positive"),
    ],
)
def test_an_unusable_musubi_file_is_explained(tmp_path: Path, more: str, message: str):
    with pytest.raises(InputError, match=message):
        imported(musubi(tmp_path, more), "musubi")


# FastVideo


def latents(folder: Path, **columns: object) -> Path:
    pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    import pyarrow
    import pyarrow.parquet

    table = {
        "id": ["a", "b"],
        "vae_latent_shape": [[16, 21, 60, 104], [16, 1, 64, 64]],
        "file_name": ["a", "b"],
        "caption": ["a cat", "a dog"],
        "media_type": ["video", "image"],
        "num_frames": [21, 1],
        "width": [480, 512],
        "height": [832, 512],
        "fps": [16.0, 0.0],
    } | columns
    (folder / "deep").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(table), folder / "deep" / "data.parquet")
    return folder


def test_fastvideo_sizes_come_from_the_latents(tmp_path: Path):
    folder = latents(tmp_path)
    assert recognise_manifest(folder) == ("fastvideo", "Parquet with latents")
    found = imported(folder, "fastvideo")
    assert [str(c.shape) for c in found.clips] == ["81x480x832", "1x512x512"]
    assert any("latents of 2 clips" in note for note in found.notes)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"vae_latent_shape": [[16, 21], [16, 1, 64, 64]]}, "[16, 21] is not [channels, frames"),
        ({"vae_latent_shape": [[16, 0, 60, 104], [16, 1, 64, 64]]}, "must be at least 1, not 0"),
        ({"media_type": ["text", "image"]}, "media_type 'text' is neither video nor image"),
        ({"vae_latent_shape": [None, [16, 1, 64, 64]], "width": [0, 1]}, "width must be at least"),
        ({"fps": [-1.0, 0.0]}, "fps must be a finite number >= 0, not -1.0"),
        ({"id": [None, "b"], "file_name": [None, "b"]}, "id is empty"),
    ],
)
def test_a_bad_row_of_fastvideo_is_counted(tmp_path: Path, columns: dict, reason: str):
    found = imported(latents(tmp_path, **columns), "fastvideo")
    assert [c.id for c in found.clips] == ["b"]
    (skipped,) = found.skipped
    assert skipped.where.endswith("data.parquet:row 1")
    assert reason in skipped.reason


def test_fastvideo_before_its_preprocessing(tmp_path: Path):
    rows = [
        {"path": "a.mp4", "cap": ["a cat"], "resolution": {"width": 832, "height": 480}},
        {"path": "b.mp4", "cap": [7]},
    ]
    rows[0] |= {"num_frames": 81, "fps": 16.0}
    file = put(tmp_path, v__json=json.dumps(rows, indent=1)) / "v.json"
    assert recognise_manifest(file)[0] == "fastvideo"
    found = imported(file, "fastvideo")
    assert str(found.clips[0].shape) == "81x480x832"
    assert found.skipped[0].where == f"{file}:17"


def test_no_parquet_is_an_error(tmp_path: Path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    with pytest.raises(InputError, match=r"bad.parquet:row 1: no readable Parquet file"):
        imported(tmp_path, "fastvideo")


# All of them


def test_clips_of_one_name_stay_apart(tmp_path: Path):
    rows = "".join(f"{d}/a.mp4,t,9,64,64,1,8,1\n" for d in "xyz") + "w/a-2.mp4,t,9,64,64,1,8,1\n"
    file = put(tmp_path, meta__csv=OPEN_SORA.split("\n")[0] + "\n" + rows) / "meta.csv"
    ids = [c.id for c in imported(file, "open-sora").clips]
    assert ids[:3] == ["a", "a-2", "a-3"]
    assert len(set(ids)) == 4


def test_written_manifests_are_read_back(tmp_path: Path):
    found = imported(put(tmp_path, meta__csv=OPEN_SORA) / "meta.csv", "open-sora")
    write_manifest(found.clips, tmp_path / "ours.jsonl")
    assert read_manifest(tmp_path / "ours.jsonl") == found.clips


def test_files_that_cannot_be_decoded_are_counted(tmp_path: Path):
    text = "path,text,num_frames,height,width,fps\nbroken.mp4,x,,,,\nfine.mp4,x,,,,\n"
    file = put(tmp_path, meta__csv=text) / "meta.csv"
    for name in ("broken.mp4", "fine.mp4"):
        (tmp_path / name).touch()
    found = imported(file, "open-sora")
    assert [c.id for c in found.clips] == ["fine"]
    assert "cannot decode" in found.skipped[0].reason
    unread = imported(file, "open-sora", read=False)
    assert [s.where for s in unread.skipped] == [f"{file}:2", f"{file}:3"]
    assert "no frames, height, width" in unread.skipped[0].reason


def test_broken_files_are_explained_before_they_are_recognised(tmp_path: Path):
    file = put(tmp_path, x__json='{"datasets": [1,\n}') / "x.json"
    with pytest.raises(InputError, match=r"x.json:2: no valid JSON"):
        recognise_manifest(file)
    file = put(tmp_path, y__json='{"datasets": [1]}') / "y.json"
    with pytest.raises(InputError, match=r"y.json:1: the format was not recognised"):
        recognise_manifest(file)


def test_a_table_of_another_name_is_read_when_asked_for(tmp_path: Path):
    file = put(tmp_path, mine__csv="file_name,caption\na.mp4,a cat\n") / "mine.csv"
    (tmp_path / "a.mp4").touch()
    assert imported(file, "finetrainers").clips[0].caption == "a cat"


def test_an_unknown_file_is_not_guessed(tmp_path: Path):
    file = put(tmp_path, x__csv="a,b\n1,2\n") / "x.csv"
    with pytest.raises(InputError, match="the format was not recognised; known are open-sora"):
        recognise_manifest(file)
