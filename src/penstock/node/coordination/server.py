"""``CoordinationServer``: the coordinator's store, served on a Unix socket to this machine's nodes.

In: a path for the file and one for the socket.  It runs on a thread with an event loop of its own,
in whichever process holds the store; the members elsewhere have a ``ServedCoordinator``.  What
is said is ``cluster/agreement/store_service.py``'s business.

The socket can be opened by the user who owns the process only.  When the disk fails no member is
served any more, and the reason is logged: every lease then ends.
"""

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final

from penstock.cluster.agreement.store_service import MemberConnection, StoreService
from penstock.core.errors import Corrupt
from penstock.node.coordination.etcd_lease import boot_ms
from penstock.side_loop import SideLoop
from penstock.storage.definitions.coordination import CoordinationStore

LOOK_S: Final = 0.05
"""How often leases are looked at."""
READ_BYTES: Final = 1 << 20

log = logging.getLogger("penstock.coordination")


class CoordinationServer:
    """Runs from ``start`` to ``stop``."""

    def __init__(self, file: str, socket_path: str, ttl_ms: int = 3000) -> None:
        self._file = file
        self._socket_path = socket_path
        self._ttl_ms = ttl_ms
        self._writers: dict[MemberConnection, asyncio.StreamWriter] = {}
        self._service: StoreService
        self._side = SideLoop("coordination", self._serve)

    def start(self) -> None:
        """Raises OSError and Corrupt."""
        self._side.start()

    def stop(self) -> None:
        """Members are not told; may be called twice."""
        self._side.stop()

    async def _serve(self) -> None:
        store: CoordinationStore | None = None
        server: asyncio.Server | None = None
        try:
            store = CoordinationStore(self._file, boot_ms())
            self._service = StoreService(store, self._ttl_ms)
            server = await self._listen()
            self._side.ready()
            await self._look_after_leases()
        finally:
            self._side.stopping.set()
            if server is not None:
                server.close()
            for writer in self._writers.values():
                writer.close()
            if store is not None:
                store.close()

    async def _listen(self) -> asyncio.Server:
        with suppress(FileNotFoundError):
            os.unlink(self._socket_path)
        mask = os.umask(0o177)
        try:
            return await asyncio.start_unix_server(self._serve_client, self._socket_path)
        finally:
            os.umask(mask)

    async def _look_after_leases(self) -> None:
        is_over = False
        while not is_over:
            self._service.tick(boot_ms())
            self._flush()
            is_over = await self._side.pause(LOOK_S)

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        client = self._service.enter()
        self._writers[client] = writer
        try:
            while data := await reader.read(READ_BYTES):
                if self._side.stopping.is_set():
                    break  # the store is closed, or will be at once
                self._service.receive(client, data, boot_ms())
                self._flush()
                await writer.drain()
        except (Corrupt, ConnectionError) as error:
            log.warning("a member of this machine is not served any more: %s", error)
        except OSError:
            log.exception("the coordinator's file cannot be used: no member is served any more")
            self._side.stopping.set()
        finally:
            del self._writers[client]
            self._service.leave(client)
            writer.close()

    def _flush(self) -> None:
        for client, writer in self._writers.items():
            if client.output:
                writer.write(bytes(client.output))
                client.output.clear()
