"""`shoal eval` of a short real run."""

from __future__ import annotations

import errno
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from cli_calls import assert_one_line, caller, trained_run
from shoal.learn import load_policy


@pytest.fixture
def shoal(capsys, tmp_path, monkeypatch):
    """Calls the command in an empty folder: status, stdout, stderr."""
    return caller(capsys, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a run that has ended. Not to be changed."""
    return trained_run(tmp_path_factory.mktemp("trained"))


def test_eval_says_how_good_the_policy_is(shoal, trained):
    status, out, err = shoal("eval", trained, "--episodes", "7")
    assert (status, err) == (0, "")
    assert re.fullmatch(r"shoal/CartPole-v1: mean return [\d.]+ ± [\d.]+ over 7 episodes\n", out)


def test_eval_json_is_alone_on_stdout_and_the_same_each_time(shoal, trained):
    answers = []
    for workers in ("1", "2"):
        status, out, _ = shoal("eval", trained, "--episodes", "8", "--seed", "11", "--num-workers", workers, "--json")
        assert status == 0 and out.count("\n") == 1
        answers.append(json.loads(out))
    assert answers[0] == answers[1]
    assert answers[0]["episodes"] == 8 and answers[0]["mean_return"] > 0 and answers[0]["std_return"] >= 0


def test_eval_and_export_take_one_checkpoint(shoal, trained, tmp_path):
    of_best = ["--episodes", "8", "--json"]
    whole = json.loads(shoal("eval", trained, *of_best)[1])
    single = json.loads(shoal("eval", trained / "checkpoints/best", *of_best)[1])
    assert single["mean_return"] == whole["mean_return"]
    status, _, err = shoal("export", trained / "checkpoints/last", "--to", "safetensors", "--output", "p.safetensors")
    assert status == 0 and (tmp_path / "p.safetensors").stat().st_size > 0, err
    assert_one_line(shoal("eval", trained / "checkpoints"), 1, "is not the folder of a run: it has no config.json")


def test_eval_of_a_native_policy_on_gymnasiums_twin_is_the_same(shoal, trained):
    native, twin = (
        json.loads(shoal("eval", trained, "--episodes", "8", "--json", *more)[1])
        for more in ([], ["--env", "CartPole-v1"])
    )
    assert native["mean_return"] == twin["mean_return"]


def test_eval_draws_an_episode(shoal, trained, tmp_path):
    from PIL import Image

    status, out, err = shoal("eval", trained, "--episodes", "1", "--gif", "episode.gif")
    assert (status, err) == (0, "")
    assert re.search(r"episode.gif   an episode of return ([\d.]+)\n", out)
    with Image.open(tmp_path / "episode.gif") as image:
        assert image.n_frames > 5 and image.size == (600, 400)


def test_eval_draws_into_no_file_of_a_run(shoal, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("shoal.cli.gif.record", lambda *_, **__: pytest.fail("it has played"))
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    (tmp_path / "link.gif").symlink_to(trained / "config.json")
    ending = "--gif takes a name that ends in .gif, not "
    assert_one_line(shoal("eval", trained, "--gif", trained / "config.json"), 2, ending)
    assert_one_line(shoal("eval", trained, "--gif", "episode.png"), 2, ending, "'episode.png'")
    assert_one_line(shoal("eval", trained, "--gif", "link.gif"), 2, "is what a run keeps there of its own")
    for folder, said in (("checkpoints", "keeps there"), ("checkpoints/last", "in the folder of a checkpoint")):
        assert_one_line(shoal("eval", trained, "--gif", trained / folder / "x.gif"), 2, said)
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_eval_leaves_a_gif_as_it_is_that_it_cannot_replace(shoal, trained, monkeypatch):
    def full(path, data):
        path.write_bytes(data[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    Path("episode.gif").write_text("an older one")
    monkeypatch.setattr("shoal.learn.durable._write", full)
    result = shoal("eval", trained, "--episodes", "1", "--gif", "episode.gif")
    assert_one_line(result, 1, "cannot write 'episode.gif': No space left on device; name another file by --gif")
    assert [path.name for path in Path().iterdir()] == ["episode.gif"]
    assert Path("episode.gif").read_text() == "an older one"


def test_eval_draws_nothing_of_a_run_that_cannot_be_loaded(shoal, trained, tmp_path):
    run = tmp_path / "damaged"
    shutil.copytree(trained, run)
    for name in ("best", "last"):
        (run / "checkpoints" / name / "state.json").write_text("{")
    assert shoal("eval", run, "--gif", "episode.gif")[0] == 1
    assert not Path("episode.gif").exists()


def test_eval_says_that_drawing_lacks_a_package_before_it_plays(shoal, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setattr("shoal.learn.evaluate", lambda *_, **__: pytest.fail("it has played"))
    assert_one_line(
        shoal("eval", trained, "--gif", "x.gif"),
        1,
        "drawing needs another package (pygame is not installed):",
        "shoal[render]",
    )


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium's, of the same
@pytest.mark.parametrize(
    "draws",
    [
        "def __init__(self): super().__init__()",
        "def render(self): raise NotImplementedError",
        "def render(self): return None",
        "def render(self): return [[0.0]]",
    ],
)
def test_eval_says_what_a_class_needs_to_be_drawn(shoal, trained, tmp_path, monkeypatch, draws):
    monkeypatch.setattr("shoal.learn.evaluate", lambda *_, **__: pytest.fail("it has played"))
    monkeypatch.delitem(sys.modules, "hidden_tasks", raising=False)
    (tmp_path / "hidden_tasks.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        f"class Hidden(CartPoleEnv):\n    {draws}\n"
        "gymnasium.register('Hidden-v0', Hidden)\n"
    )
    result = shoal("eval", trained, "--env", "hidden_tasks:Hidden-v0", "--gif", "x.gif")
    parts = ["hidden_tasks:Hidden-v0 cannot be drawn", "render_mode='rgb_array'", "metadata['render_modes']"]
    assert_one_line(result, 1, *parts, "(height, width, 3) of uint8")


def test_eval_cuts_an_episode_that_it_draws_and_that_has_no_end(shoal, trained, monkeypatch):
    from PIL import Image

    monkeypatch.setattr("shoal.cli.gif.MOST_STEPS", 5)  # of a CartPole, whose pole needs some ten steps to fall
    status, out, err = shoal("eval", trained, "--episodes", "1", "--gif", "episode.gif")
    assert (status, err) == (0, "")
    assert out.endswith("episode.gif   an episode of return 5.0, cut after 5 steps\n")
    with Image.open("episode.gif") as image:
        assert image.n_frames <= 6


STILL = """
import gymnasium
import numpy as np

class Still(gymnasium.Env):
    # Nothing moves, for longer than a frame of a GIF can be shown.

    metadata = {"render_modes": ["rgb_array"], "render_fps": 0.01}
    observation_space = gymnasium.make("CartPole-v1").observation_space
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 1.0, False, False, {}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

gymnasium.register("Still-v0", Still, max_episode_steps=10)
"""


def test_eval_draws_an_episode_in_which_nothing_moves_for_long(shoal, trained, tmp_path):
    (tmp_path / "still_task.py").write_text(STILL)
    status, out, err = shoal("eval", trained, "--env", "still_task:Still-v0", "--episodes", "1", "--gif", "still.gif")
    assert (status, err) == (0, "")
    assert out.endswith("an episode of return 10.0\n") and Path("still.gif").exists()


def test_eval_of_wrong_things_is_one_line(shoal, trained, tmp_path):
    assert_one_line(shoal("eval", "nowhere"), 2, "there is no folder 'nowhere'")
    assert_one_line(shoal("eval", trained, "--checkpoint", "bets"), 2, "best or last", "did you mean best?")
    assert_one_line(shoal("eval", trained, "--gif", "no/x.gif"), 2, "no folder 'no'")
    assert_one_line(shoal("eval", trained, "--gif", "."), 2, "cannot write '.': it is a folder; name a file by --gif")
    assert_one_line(shoal("eval", trained, "--seed", str(2**64)), 2, "--seed takes at most 18446744073709551615, not")
    assert_one_line(shoal("eval", trained, "--env", "Pendulum-v1"), 1, "the policy was trained with")
    assert_one_line(shoal("eval", trained, "--episodes", "0"), 2, "--episodes")
    assert_one_line(
        shoal("eval", trained, "--episodes", str(10**12)), 1, f"episodes is {10**12}, it has to be a number"
    )


def test_eval_of_a_damaged_checkpoint_says_so(shoal, trained, tmp_path):
    run = tmp_path / "damaged"
    shutil.copytree(trained, run)
    for file in run.glob("checkpoints/*/policy.safetensors"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    assert_one_line(shoal("eval", run), 1, "policy.safetensors")


def test_a_checkpoint_without_its_state_is_damaged(shoal, trained, tmp_path):
    run = tmp_path / "damaged"
    shutil.copytree(trained, run)
    best = run / "checkpoints/best"
    (best / "state.json").unlink()
    said = "is damaged: it has no state.json"
    assert_one_line(shoal("eval", run), 1, f"the checkpoint {best} {said}")
    assert_one_line(shoal("eval", best), 1, f"the checkpoint '{best}' {said}")
    assert_one_line(shoal("export", run, "--to", "onnx"), 1, f"the checkpoint {best} {said}")
    with pytest.raises(FileNotFoundError, match=said):
        load_policy(best)
    assert shoal("eval", run, "--checkpoint", "last", "--episodes", "1")[0] == 0


def test_a_config_that_lacks_what_is_asked_for_is_damaged(shoal, trained, tmp_path):
    run = tmp_path / "damaged"
    shutil.copytree(trained, run)
    (run / "config.json").write_text('{"format": "shoal.run"}')
    for words in (["eval", run], ["train", "--resume", run]):
        assert_one_line(shoal(*words), 1, "config.json' is damaged: it has no env and no config")
    recorded = json.loads((trained / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(recorded | {"env": 3}))
    for words in (["eval", run], ["train", "--resume", run]):
        assert_one_line(shoal(*words), 1, "config.json' is damaged: it has env = 3; put a copy of it in its place")
    (run / "config.json").write_text("[" * 100_000)
    assert_one_line(shoal("eval", run), 1, "config.json' is damaged: ")


def test_eval_before_the_first_checkpoint_says_so(shoal, tmp_path, trained):
    run = tmp_path / "young"
    run.mkdir()
    (run / "config.json").write_bytes((trained / "config.json").read_bytes())
    assert_one_line(shoal("eval", run), 1, "holds no policy")
