"""An object store in this process: as much of the S3 protocol as Arrow speaks, over real HTTP.

It judges no signature. Objects appear as a whole, when a PUT or the end of a multipart upload is answered. A test can let the
store refuse changes: for a user who may not write, and for a job that dies, because from then on the job changes nothing.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import pytest

XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
DATE = "2026-01-01T00:00:00.000Z"


def _joined(stream: BufferedIOBase) -> bytes:
    """Read chunks: each is its size in hex, a line's end, its bytes, and a line's end. Trailers follow the one of size 0."""
    whole = bytearray()
    while size := int(stream.readline().split(b";")[0], 16):
        whole += stream.read(size)
        stream.readline()
    while stream.readline().strip():
        pass
    return bytes(whole)


class ObjectStore(ThreadingHTTPServer):
    """The objects by bucket and key, and the uploads that have not ended."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()
        self.refused: str | None = None
        """A change is refused if its path contains this text; None: no change is."""
        self.changes_left: float = float("inf")
        """How many changes of objects are made before all others are refused."""

    def takes_change(self, path: str, *, of_objects: bool = True) -> bool:
        if self.changes_left <= 0 or (self.refused is not None and self.refused in path):
            return False
        self.changes_left -= of_objects
        return True


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the second packet of an answer waits 40 ms for the word about the first one
    server: ObjectStore

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _answer(self, status: int, body: bytes = b"", /, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.get("length", str(len(body))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _asked(self) -> tuple[str, dict[str, list[str]], bytes]:
        parts = urlsplit(self.path)
        return unquote(parts.path)[1:], parse_qs(parts.query, keep_blank_values=True), self._body()

    def _body(self) -> bytes:
        """Read the body. HTTP may cut it into chunks, and the body may be cut into S3's chunks once more."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = _joined(self.rfile)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return _joined(BytesIO(body)) if self.headers.get("Content-Encoding") == "aws-chunked" else body

    def do_HEAD(self) -> None:
        self._read(*self._asked()[:2])

    def do_GET(self) -> None:
        self._read(*self._asked()[:2])

    def _read(self, path: str, query: dict[str, list[str]]) -> None:
        with self.server.lock:
            if "list-type" in query:
                self._list(path, query)
            elif "/" not in path.rstrip("/"):
                self._answer(200)
            elif path in self.server.objects:
                self._send(self.server.objects[path])
            else:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _send(self, data: bytes) -> None:
        date = "Thu, 01 Jan 2026 00:00:00 GMT"
        asked = self.headers.get("Range")
        if self.command == "HEAD":
            self._answer(200, length=str(len(data)), Last_Modified=date)
        elif asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last) + 1]
            self._answer(
                206, part, Content_Range=f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}", Last_Modified=date
            )
        else:
            self._answer(200, data, Last_Modified=date)

    def _list(self, path: str, query: dict[str, list[str]]) -> None:
        bucket = path.rstrip("/")
        prefix = query.get("prefix", [""])[0]
        delimiter = query.get("delimiter", [""])[0]
        found, folders = "", set()
        for name, data in sorted(self.server.objects.items()):
            key = name.removeprefix(f"{bucket}/")
            if key == name or not key.startswith(prefix):
                continue
            head, is_deeper, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if is_deeper:
                folders.add(prefix + head + delimiter)
                continue
            found += (
                f"<Contents><Key>{escape(key)}</Key><LastModified>{DATE}</LastModified>"
                f"<Size>{len(data)}</Size></Contents>"
            )
        found += "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)
        )
        count = found.count("<Key>") + len(folders)
        body = (
            f"<ListBucketResult {XMLNS}><Name>{bucket}</Name><KeyCount>{count}</KeyCount>"
            f"<IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
        )
        self._answer(200, body.encode(), Content_Type="application/xml")

    def do_PUT(self) -> None:
        path, query, body = self._asked()
        with self.server.lock:
            if not self.server.takes_change(path, of_objects="partNumber" not in query):
                self._refuse()
            elif "partNumber" in query:
                self.server.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
                self._answer(200, ETag='"0"')
            elif source := self.headers.get("x-amz-copy-source"):
                self._copy(unquote(source).lstrip("/"), path)
            else:
                self.server.objects[path] = body
                self._answer(200, ETag='"0"')

    def _copy(self, source: str, path: str) -> None:
        if source not in self.server.objects:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", Content_Type="application/xml")
            return
        self.server.objects[path] = self.server.objects[source]
        self._answer(200, f"<CopyObjectResult {XMLNS}><ETag>0</ETag></CopyObjectResult>".encode())

    def _refuse(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self._answer(403, body, Content_Type="application/xml")

    def do_POST(self) -> None:
        path, query, asked = self._asked()
        bucket, _, key = path.partition("/")
        with self.server.lock:
            if not self.server.takes_change(path, of_objects="uploads" not in query):
                self._refuse()
                return
            if "delete" in query:
                for each in re.findall("<Key>(.*?)</Key>", asked.decode()):
                    self.server.objects.pop(f"{bucket.rstrip('/')}/{unescape(each)}", None)
                body = f"<DeleteResult {XMLNS}></DeleteResult>"
            elif "uploads" in query:
                upload = f"upload-{len(self.server.uploads)}"
                self.server.uploads[upload] = {}
                body = (
                    f"<InitiateMultipartUploadResult {XMLNS}><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
                    f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                )
            else:
                parts = self.server.uploads[query["uploadId"][0]]
                self.server.objects[path] = b"".join(parts[number] for number in sorted(parts))
                body = (
                    f"<CompleteMultipartUploadResult {XMLNS}><Key>{escape(key)}</Key>"
                    f"<ETag>0</ETag></CompleteMultipartUploadResult>"
                )
        self._answer(200, body.encode(), Content_Type="application/xml")

    def do_DELETE(self) -> None:
        path, _, _ = self._asked()
        with self.server.lock:
            if not self.server.takes_change(path):
                self._refuse()
                return
            self.server.objects.pop(path, None)
        self._answer(204)


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start a store, and let Arrow find it as S3 in this process and in the processes that it starts."""
    store = ObjectStore()
    thread = threading.Thread(target=store.serve_forever, args=(0.05,))
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as env:
            env.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.server_port}")
            env.setenv("AWS_ACCESS_KEY_ID", "key")
            env.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            env.setenv("AWS_DEFAULT_REGION", "us-east-1")
            yield store
    finally:
        store.shutdown()
        thread.join()
        store.server_close()
