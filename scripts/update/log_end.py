"""Where Cleave's log ends, from its files: only a record whose checksum is right for its place is one.

A segment's file is used again after a checkpoint, so what stands behind the last record may be older records. The
format is that of the log's writer (docs/formats.md): a header of 64 bytes, then records of 16 bytes and a payload,
filled up to multiples of 8.
"""

import struct

HEADER = struct.Struct("<8sII16sQQqI")
RECORD_BYTES = 16
KINDS = range(1, 8)


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc32c_table()


def crc32c(data, before=0):
    table, crc = TABLE, before ^ 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def log_end(folder, known=0):
    """The place behind the last record in the log's folder. `known` is a place that was an end before: the search
    begins there, if the last segment is still the same."""
    starts = sorted((int(path.stem, 16) for path in folder.glob("*.log")), reverse=True)
    for start in starts:
        data = next(path for path in folder.glob("*.log") if int(path.stem, 16) == start).read_bytes()
        header = header_of(data, start)
        if header:
            return end_of_records(data, start, crc32c(header), known)
    raise AssertionError("the log has no segment")


def header_of(data, start):
    """The log's identity, if the file has a header of its own start."""
    if len(data) < HEADER.size + 4:
        return None
    magic, _, _, identity, stored, *_ = HEADER.unpack_from(data)
    intact = crc32c(data[:HEADER.size]) == int.from_bytes(data[HEADER.size:HEADER.size + 4], "little")
    return identity if magic == b"CLEAVLOG" and stored == start and intact else None


def end_of_records(data, start, seed, known):
    at = known - start if start + HEADER.size + 4 <= known < start + len(data) else HEADER.size + 4
    while at + RECORD_BYTES <= len(data):
        checksum, length = struct.unpack_from("<II", data, at)
        kind, length = length >> 24, length & 0xFFFFFF
        payload = data[at + RECORD_BYTES:at + RECORD_BYTES + length]
        if kind not in KINDS or len(payload) < length:
            break
        covered = (start + at).to_bytes(8, "little") + data[at + 4:at + RECORD_BYTES]
        if crc32c(covered + crc32c(payload).to_bytes(4, "little"), seed) != checksum:
            break
        at += -(-(RECORD_BYTES + length) // 8) * 8
    return start + at
