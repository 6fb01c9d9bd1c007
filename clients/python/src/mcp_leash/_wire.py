"""HTTP to the daemon: one connection per request, over its Unix socket or over TCP."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from ._documents import Event
from ._errors import LeashError, from_answer

#: No daemon listens there: no daemon has seen the request.
NOBODY = (ConnectionRefusedError, FileNotFoundError)

#: The connection broke: the daemon may have seen the request.
BROKEN = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError, http.client.IncompleteRead)


class Place(NamedTuple):
    """The address of a daemon."""

    socket: Optional[str]
    url: Optional[str] = None
    token: Optional[str] = None

    def __str__(self) -> str:
        return self.socket or self.url or ""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


def _connection(place: Place) -> Tuple[http.client.HTTPConnection, Dict[str, str]]:
    if place.socket is not None:
        return _UnixConnection(place.socket), {}
    url = urlsplit(place.url or "")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    return kind(url.hostname or "", url.port), {"Authorization": f"Bearer {place.token}"}


class _Answer(NamedTuple):
    response: http.client.HTTPResponse
    socket: socket.socket


def _send(place: Place, method: str, path: str, body: Any, accept: str) -> _Answer:
    connection, headers = _connection(place)
    headers.update({"Accept": accept, "Connection": "close"})
    payload = None
    if body is not None:
        payload = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    try:
        connection.connect()
        kept = connection.sock
        connection.request(method, path, payload, headers)
        # The response owns the socket from here on, and closes it.
        return _Answer(connection.getresponse(), kept)
    except BaseException:
        connection.close()
        raise


def call(place: Place, method: str, path: str, body: Any = None) -> Any:
    """The content of a successful answer; raises an error otherwise."""
    response = _send(place, method, path, body, "application/json").response
    with response:
        payload = response.read()
    if not 200 <= response.status <= 299:
        raise from_answer(response.status, payload)
    try:
        return json.loads(payload) if payload else None
    except ValueError as error:
        raise LeashError("invalid-answer", "leash answered with something that is not JSON") from error


def stream(place: Place, method: str, path: str, body: Any = None) -> EventStream:
    """The same for an answer that is a stream of events."""
    answer = _send(place, method, path, body, "text/event-stream, application/problem+json")
    if not 200 <= answer.response.status <= 299:
        with answer.response:
            raise from_answer(answer.response.status, answer.response.read())
    return EventStream(answer)


class EventStream:
    """The events of one stream, which is open when the caller gets it: nothing that happens from then on is missed.

    Ends when it is closed, when the daemon ends, and after the event `lost` (it was not read for too long).
    """

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        kind, lines = "message", []  # type: str, List[str]
        while True:
            line = self._line()
            if line is None:
                raise StopIteration
            if line == "":
                if lines:
                    return Event(kind, json.loads("\n".join(lines)))
                kind = "message"
                continue
            name, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name == "event":
                kind = value
            elif name == "data":
                lines.append(value)

    def _line(self) -> Optional[str]:
        """A line without its end; empty after the last, however the stream ended."""
        try:
            line = self._answer.response.readline()
        except (OSError, ValueError, http.client.HTTPException):
            return None
        return line.decode("utf-8").rstrip("\r\n") if line.endswith(b"\n") else None

    def close(self) -> None:
        """Stops listening; also while another thread waits for an event."""
        try:
            self._answer.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._answer.response.close()
