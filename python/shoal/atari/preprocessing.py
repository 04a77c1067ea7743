"""What becomes of a game before an agent sees it, as switches."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

__all__ = ["AtariPreprocessing", "preprocessing_of"]

PIXELS = ("gymnasium", "sb3", "cleanrl")
PADDINGS = ("reset", "zero")


@dataclass(frozen=True)
class AtariPreprocessing:
    """The usual preprocessing of Atari's games, each part a switch. Names are those of Gymnasium's `AtariPreprocessing`
    and Stable-Baselines3's `AtariWrapper` where they have the part.

    The defaults are those of training (Mnih et al. 2015, and Machado et al. 2018 for the pixels). `like()` has those of
    libraries, whose wrappers' observations, rewards and ends it then gives, bit for bit.

    Attributes:
        noop_max: a game begins with 1 to so many frames without an action, drawn from the game's generator; 0: with none.
        frame_skip: frames that an action is repeated for; their rewards are added.
        max_pool: a picture is the larger of the last two of these frames, pixel by pixel (sprites flicker); False: the last.
        terminal_on_life_loss: a lost life ends an episode (terminated). The next goes on with the game after one no-op, until
            it is over; a reset with a seed begins a new game.
        stop_at_life_loss: where a lost life ends an episode, lives are looked at after each frame, and a step stops with the
            frame that loses one, be it the last, as in Gymnasium; False: after all frames of a step, and a game that shows
            no lives goes on until it is over, as in Stable-Baselines3 and CleanRL.
        fire_reset: where the game has FIRE as its second action, an episode begins with FIRE and the action after it, each
            for frame_skip frames.
        screen_size: columns and rows of a picture, one number for both; None: as the emulator has them. At most those.
        grayscale_obs: pictures are grey; False: RGB, as a last axis of 3.
        frame_stack: an observation is so many pictures, oldest first along a leading axis; None: one, without that axis.
        clip_reward: rewards are -1, 0 or 1, by their sign. Statistics of episodes count the game's own.
        pixels: "gymnasium": the palette's own grey, the larger of two frames, resized (as ALE and EnvPool); "sb3": the larger
            of two frames in RGB, OpenCV's grey, resized; "cleanrl": the larger in RGB, resized, OpenCV's grey. The first
            is the fastest.
        padding_type: an episode's first observation is its first picture, "reset": so many times, or "zero": after black ones.
        whole_games: an episode is a whole game, as for an evaluation: where a lost life would have ended it, what the
            next episode would have begun with is part of the step.

    Raises:
        TypeError, ValueError: a switch that is none of its choices.
    """

    noop_max: int = 30
    frame_skip: int = 4
    max_pool: bool = True
    terminal_on_life_loss: bool = True
    stop_at_life_loss: bool = False
    fire_reset: bool = True
    screen_size: int | tuple[int, int] | None = 84
    grayscale_obs: bool = True
    frame_stack: int | None = 4
    clip_reward: bool = True
    pixels: str = "gymnasium"
    padding_type: str = "reset"
    whole_games: bool = False

    def __post_init__(self) -> None:
        _check_int("noop_max", self.noop_max, 0)
        _check_int("frame_skip", self.frame_skip, 1)
        if self.frame_stack is not None:
            _check_int("frame_stack", self.frame_stack, 1)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool" and not isinstance(value, bool):
                raise TypeError(f"AtariPreprocessing({field.name}=…) takes True or False, got {value!r}")
        _check_choice("pixels", self.pixels, PIXELS)
        _check_choice("padding_type", self.padding_type, PADDINGS)
        if self.screen_size is not None:
            object.__setattr__(self, "screen_size", _checked_size(self.screen_size))

    @classmethod
    def like(cls, library: str, **switches: Any) -> AtariPreprocessing:
        """The preprocessing of a library, with some switches set otherwise.

        Args:
            library: "gymnasium": `AtariPreprocessing` with its defaults and `FrameStackObservation(4)`. "sb3":
                `make_atari_env` and `VecFrameStack(4)`, as rl-baselines3-zoo has them. "cleanrl": the wrappers of
                ppo_atari.py and dqn_atari.py.
            switches: any of AtariPreprocessing's.
        """
        _check_choice("library", library, tuple(_LIBRARIES))
        return _with(cls(**_LIBRARIES[library]), switches)

    def for_evaluation(self) -> AtariPreprocessing:
        """Whole games with the game's own rewards, which are otherwise what an agent has been trained on."""
        return replace(self, whole_games=True, clip_reward=False)

    def as_dict(self) -> dict[str, Any]:
        """All switches, as JSON can hold them."""
        return asdict(self)

    @property
    def size(self) -> tuple[int, int] | None:
        """Columns and rows of a picture; None: as the emulator has them."""
        assert self.screen_size is None or isinstance(self.screen_size, tuple)
        return self.screen_size


_LIBRARIES: dict[str, dict[str, Any]] = {
    "gymnasium": {
        "terminal_on_life_loss": False,
        "stop_at_life_loss": True,
        "fire_reset": False,
        "clip_reward": False,
    },
    "sb3": {"pixels": "sb3", "padding_type": "zero"},
    "cleanrl": {"pixels": "cleanrl"},
}


def preprocessing_of(asked: Any) -> AtariPreprocessing | None:
    """What `atari=` says; None: the environments as they are.

    Args:
        asked: None or False, True, the name of a library for AtariPreprocessing.like(), an AtariPreprocessing, or a dict of
            its switches; "like" in a dict names a library.

    Raises:
        TypeError, ValueError: for anything else; the message names a switch that there is not, and the nearest.
    """
    if asked is None or asked is False:
        return None
    if asked is True:
        return AtariPreprocessing()
    if isinstance(asked, AtariPreprocessing):
        return asked
    if isinstance(asked, str):
        return AtariPreprocessing.like(asked)
    if isinstance(asked, Mapping):
        switches = dict(asked)
        library = switches.pop("like", None)
        return _with(AtariPreprocessing() if library is None else AtariPreprocessing.like(library), switches)
    raise TypeError(
        "atari takes True or False, the name of a library (gymnasium, sb3, cleanrl), a shoal.AtariPreprocessing, or a "
        f"dict of its switches; got {asked!r}"
    )


def _with(preprocessing: AtariPreprocessing, switches: Mapping[str, Any]) -> AtariPreprocessing:
    names = [field.name for field in fields(AtariPreprocessing)]
    for name in switches:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names)}"
            raise ValueError(f"AtariPreprocessing has no switch {name!r}; {hint}")
    return replace(preprocessing, **switches)


def _checked_size(size: Any) -> tuple[int, int]:
    pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2:
        raise ValueError(f"AtariPreprocessing(screen_size=…) takes a number, or columns and rows, got {size!r}")
    for number in pair:
        _check_int("screen_size", number, 1)
    return int(pair[0]), int(pair[1])


def _check_int(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"AtariPreprocessing({name}=…) takes an int, got {value!r}")
    if value < least:
        raise ValueError(f"AtariPreprocessing({name}=…) takes at least {least}, got {value!r}")


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        *most, last = map(repr, choices)
        raise ValueError(f"AtariPreprocessing({name}=…) takes {', '.join(most)} or {last}, got {value!r}")
