"""What tests ask of a Peer, or of this process, to do with what crosses. Imports torch."""

from __future__ import annotations

import torch

import shoal.multiprocessing.reduction as reduction


def same_process(obj):
    data, blocks = reduction.dumps(obj)
    loaded = reduction.loads(data)
    del blocks
    return loaded


def echo(obj):
    return obj


_kept = {}


def keep(name, obj):
    _kept[name] = obj


def kept(name):
    return _kept[name]


def forget(name):
    del _kept[name]


def fill(tensor, value):
    with torch.no_grad():
        tensor.fill_(value)
