"""The layers of one NSQ connection's socket: TLS, then snappy or deflate, as IDENTIFY agreed on.

The loop asks for the next carrier when what was said before has left, and each layer begins with an
``OK`` of its own.  Nothing is read meanwhile.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.protocols.nsq.codec.commands import BadCommand
from penstock.protocols.nsq.codec.frames import OK
from penstock.protocols.nsq.codec.identify import Identity
from penstock.runtime.session import Session

TLS: Final = "tls"
SNAPPY: Final = "snappy"
DEFLATE: Final = "deflate"


@final
class LayerStack:
    """``peer``: the client's address and port."""

    def __init__(self, session: Session, identity: Identity, peer: tuple[str, int]) -> None:
        self.peer: Final = peer
        self.up: list[str] = []
        self.due: list[str] = []  # agreed on, and not up yet
        self.tls_version: str = ""
        self.tls_cipher: str = ""
        self.common_name: str = ""  # of the client's certificate
        self.login: str = ""  # the user that it names
        self._session: Final = session
        self._identity: Final = identity
        self._inflate: Callable[[], bytes] | None = None
        self._touch: Callable[[], None] | None = None  # tells the loop that there is output

    @property
    def deflate_level(self) -> i64:
        return self._identity.deflate_level

    def wanted(self) -> list[str]:
        """Of the IDENTIFY that was read; raises BadCommand for a layer that is up."""
        identity = self._identity
        found: list[str] = []
        for wanted, layer in (
            (identity.tls, TLS),
            (identity.snappy, SNAPPY),
            (identity.deflate, DEFLATE),
        ):
            if wanted and layer in self.up:
                raise BadCommand("E_IDENTIFY_FAILED", f"IDENTIFY failed {layer} is on already")
            if wanted:
                found.append(layer)
        return found

    def agree(self, layers: list[str]) -> None:
        """They follow what was said before."""
        self.due = layers

    def give_up(self) -> None:
        """The client has broken the agreement."""
        self.due = []
        self._session.swap_carrier(False)

    def put_next(
        self, layers: "Layers", sock: object, rest: bytes, touch: Callable[[], None]
    ) -> object:
        """The carrier over ``sock``: what is said from now on goes through one more layer."""
        self._session.swap_carrier(False)
        self._touch = touch
        return layers.over(self.due[0], sock, rest, self)

    def layer_is_up(self) -> None:
        """It works: say so through it, and go on."""
        self.up.append(self.due.pop(0))
        self._session.out.write(OK)
        self._session.swap_carrier(len(self.due) > 0)
        touch = self._touch
        if touch is not None:
            touch()

    def describe_tls(self, version: str, cipher: str, common_name: str, login: str) -> None:
        """What TLS agreed on."""
        self.login = login
        self.tls_version = version
        self.tls_cipher = cipher
        self.common_name = common_name

    def draw_from(self, inflate: Callable[[], bytes]) -> None:
        """``inflate``: more plain bytes of what a layer has read; b"" = there are none.

        It may raise ConnectionAbortedError.
        """
        self._inflate = inflate

    def draw(self) -> bytes:
        """More plain bytes of what came in already; b"" = there are none, or no more can be had."""
        inflate = self._inflate
        if inflate is None:
            return b""
        try:
            return inflate()
        except ConnectionAbortedError:
            self._session.close()
            return b""


@mypyc_attr(allow_interpreted_subclasses=True)
class Layers:
    """Puts a layer on a socket, and tells the stack once it is up."""

    def over(self, kind: str, sock: object, rest: bytes, stack: LayerStack) -> object:
        """``rest``: what was read of the socket already."""
        raise NotImplementedError
