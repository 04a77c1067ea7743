"""Leased ports in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shoal.reprs import never_raises

if TYPE_CHECKING:
    from shoal._core.process import Identity
    from shoal._core.process import PortLease as _Lease

__all__ = ["PortLease", "lease_port"]

_KINDS = ("tcp", "udp")


class PortLease(int):
    """A port number that is this worker's until release(), the end of the `with` block, or the end of the process.

    It is an int; for what takes nothing but a plain one (socket.create_connection), `.port` and the target of `with` are
    plain. Letting go of the object does not release the port: a server may
    still run on it. A copy in another process (a pickled one, one in a forked child) is a plain number.

    Attributes:
        kind: "tcp" or "udp".
    """

    kind: str
    _lease: _Lease
    _forget: Callable[[int], Any]

    @property
    def port(self) -> int:
        return int(self)

    @property
    def held(self) -> bool:
        """False once it is released."""
        return self._lease.held

    def release(self) -> None:
        """Gives the port back, to be leased again after all others of its range. Idempotent."""
        self._lease.release()
        self._forget(id(self))

    def __enter__(self) -> int:
        return int(self)

    def __exit__(self, *_: object) -> None:
        self.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)

    @never_raises
    def __repr__(self) -> str:
        return f"PortLease({int(self)}, {self.kind!r}{'' if self.held else ', released'})"

    def __str__(self) -> str:
        return str(int(self))


def lease_port(
    identity: Identity, range: range | tuple[int, int] | None, kind: str, held: dict[int, PortLease]
) -> PortLease:
    """As Worker.lease_port() says; `held` keeps the lease until it is released."""
    if kind not in _KINDS:
        raise ValueError(f"lease_port(kind=…) takes 'tcp' or 'udp', got {kind!r}")
    core = identity.lease_port(kind, *_bounds(range))
    lease = PortLease(core.port)
    lease.kind, lease._lease, lease._forget = kind, core, lambda key: held.pop(key, None)
    held[id(lease)] = lease
    return lease


def _bounds(ports: Any) -> tuple[int, int] | tuple[()]:
    if ports is None:
        return ()
    if isinstance(ports, range) and ports.step == 1 and len(ports) > 0:
        return ports[0], ports[-1]
    if isinstance(ports, tuple | list) and len(ports) == 2 and all(isinstance(port, int) for port in ports):
        return ports[0], ports[1]
    raise TypeError(
        f"lease_port(range=…) takes range(20000, 21000), or (20000, 20999) with both included, got {ports!r}"
    )
