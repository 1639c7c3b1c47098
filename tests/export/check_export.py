#!/usr/bin/env python3
"""check_export.py VMPOOL INPUTS FOLDER: every export read back by a reader that knows the other side's format only, and
compared with the snapshot and the log it was made from."""

import csv
import io
import json
import os
import pickle
import pickletools
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree
import zlib

vmpool, inputs, folder = sys.argv[1:4]


def export(name, form, *options, log=True):
    path = os.path.join(folder, f"{name}.{form}")
    files = [os.path.join(folder, f"{name}.json")] + ([os.path.join(folder, f"{name}.vmplog")] if log else [])
    subprocess.run([vmpool, "export", "--format", form, *options, *files, "-o", path], check=True)
    with open(path, "rb") as file:
        return file.read()


def snapshot_of(name):
    with open(os.path.join(folder, f"{name}.json"), encoding="utf-8") as file:
        return json.load(file)


def blocks_of(snapshot):
    return [(int(r["base"], 16) + b[0], b) for r in snapshot["ranges"] for b in r["blocks"]]


# ---- memory_viz: section "exact contract" of what PyTorch's viewer reads ----


class Restricted(pickle.Unpickler):
    def find_class(self, module, name):
        raise ValueError(f"the pickle names {module}.{name}")


READ_BY_THE_VIEWER = {
    "PROTO", "FRAME", "EMPTY_DICT", "EMPTY_LIST", "MARK", "MEMOIZE", "SHORT_BINUNICODE", "BININT", "BININT1", "LONG1",
    "TUPLE2", "NEWTRUE", "NEWFALSE", "BINGET", "LONG_BINGET", "SETITEMS", "APPEND", "APPENDS", "BINFLOAT", "STOP",
}


def check_opcodes(data):
    marks, count = [], 0
    for opcode, argument, _ in pickletools.genops(data):
        assert opcode.name in READ_BY_THE_VIEWER, opcode.name
        if opcode.name == "PROTO":
            assert 2 <= argument <= 4, argument
        if opcode.name == "LONG1":
            assert argument < 2**63, argument
        if opcode.name == "MARK":
            marks.append(count)
            count = 0
        elif opcode.name in ("APPENDS", "SETITEMS"):
            assert opcode.name == "SETITEMS" or count <= 1000, f"{count} items in one batch"
            count = marks.pop()
        elif opcode.name == "TUPLE2":
            count -= 1
        elif opcode.name not in ("MEMOIZE", "PROTO", "FRAME", "STOP"):
            count += 1


def occupied(segments):
    """Blocks as the viewer sees them: their addresses are sums of sizes, and they fill their segment."""
    blocks = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address, "blocks tile their segment"
            assert 0 <= block["requested_size"] <= block["size"]
            if block["state"] in ("active_allocated", "active_pending_free"):
                blocks[address] = block["size"]
            else:
                assert block["state"] == "inactive", block["state"]
            address += block["size"]
        assert address == segment["address"] + segment["total_size"], "blocks fill their segment"
        assert isinstance(segment["segment_pool_id"], tuple) and segment["segment_pool_id"] != (0, 0)
        assert address < 2**53
    return blocks


class Segments:
    """Stretches of mapped addresses, by granule of 2 MiB."""

    def __init__(self, segments):
        self.mapped = set()
        for segment in segments:
            self.change(segment["address"], segment["total_size"], True)

    def change(self, address, size, mapped):
        assert address % 2**21 == 0 and size % 2**21 == 0
        for granule in range(address >> 21, (address + size) >> 21):
            assert (granule in self.mapped) != mapped, f"{granule:#x} is {'' if mapped else 'not '}mapped already"
            (self.mapped.add if mapped else self.mapped.discard)(granule)

    def hold(self, address, size):
        return all(g in self.mapped for g in range(address >> 21, ((address + size - 1) >> 21) + 1))


def take_back(events, blocks, segments):
    """Runs the events backwards, as the viewer does: each inverse must apply, each block lie in a segment."""
    requested = set()
    for event in reversed(events):
        address, size = event["addr"], event["size"]
        if event["action"] == "free_completed":
            assert address not in blocks, "a free makes a block that is there"
            blocks[address] = size
            requested.add(address)
            assert segments.hold(address, size), "a block outside the segments"
        elif event["action"] == "free_requested":
            assert address in requested
            requested.remove(address)
        elif event["action"] == "alloc":
            assert blocks.pop(address) == size, "an allocation that ends another block"
            assert segments.hold(address, size)
        elif event["action"] == "segment_map":
            segments.change(address, size, False)
        elif event["action"] == "segment_unmap":
            segments.change(address, size, True)
        else:
            assert event["action"] in ("oom", "snapshot"), event["action"]
            assert event["action"] != "oom" or event["device_free"] >= 0


def check_memory_viz(name, snapshot):
    data = export(name, "memory_viz")
    check_opcodes(data)
    document = Restricted(io.BytesIO(data)).load()
    events = document["device_traces"][snapshot["pool"]["device"]]
    blocks = occupied(document["segments"])
    assert sum(s["total_size"] for s in document["segments"]) == snapshot["stats"]["mapped"], "mapped"
    if not snapshot["regions"]:
        assert blocks == {address: row[1] for address, row in blocks_of(snapshot)}, "the blocks of the snapshot"
    assert sum(blocks.values()) == snapshot["stats"]["live"], "live"
    times = [event["time_us"] for event in events]
    assert times == sorted(times)
    assert document["allocator_settings"]["preset"] == "mixed"
    segments = Segments(document["segments"])
    take_back(events, blocks, segments)
    kinds = {event["action"] for event in events}
    if name != "sparse":  # whose log begins in the middle of its pool's life
        assert blocks == {} and segments.mapped == set(), "the start is empty"
        assert {"segment_map", "segment_unmap"} <= kinds, kinds
    # a tail of the events fits the same last state
    tail = Restricted(io.BytesIO(export(name, "memory_viz", "--last", "25"))).load()
    assert len(tail["device_traces"][0]) == min(25, len(events)) and tail["segments"] == document["segments"]
    alone = Restricted(io.BytesIO(export(name, "memory_viz", log=False))).load()
    assert alone["device_traces"] == [[]]
    assert occupied(alone["segments"]) == {a: row[1] for a, row in blocks_of(snapshot)}, "the snapshot alone"
    return f"{len(events)} events taken back to the start"


# ---- perfetto: the wire format of protocol buffers ----


def fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2, key
            size = varint()
            assert at + size <= len(data)
            yield key >> 3, data[at:at + size]
            at += size


def check_perfetto(name, snapshot, log=True):
    tracks, depth, open_slices, counters, slices = {}, {}, 0, {}, 0
    last = 0
    for field, packet in fields(export(name, "perfetto", log=log)):
        assert field == 1
        packet = dict(fields(packet))
        assert packet[10] == 1
        if 60 in packet:
            track = dict(fields(packet[60]))
            tracks[track[1]] = track
            continue
        event = dict(fields(packet[11]))
        assert event[11] in tracks, "an event on a track that isn't described"
        if log:
            assert packet[8] >= last, "time falls"
            last = packet[8]
        if event[9] == 4:
            assert 8 in tracks[event[11]]
            counters.setdefault(tracks[event[11]][2].decode(), []).append(event[30])
        elif event[9] == 1:
            slices += 1
            depth[event[11]] = depth.get(event[11], 0) + 1
            assert depth[event[11]] == 1, "slices of one track overlap"
        elif event[9] == 2:
            depth[event[11]] -= 1
            assert depth[event[11]] == 0
        else:
            assert event[9] == 3 and event[23]
    assert not any(depth.values()), "slices without an end"
    if log:
        assert counters["live"][-1] == snapshot["stats"]["live"], "live at the snapshot"
        assert max(counters["mapped"]) <= snapshot["stats"]["peak_mapped"]
    if log:
        assert counters["mapped"][-1] == snapshot["stats"]["mapped"]
    else:
        runs = sum(len(r["slots"]) + len(r["blocks"]) for r in snapshot["ranges"])
        assert slices == runs, f"{slices} slices for {runs} stretches"
    return f"{slices} slices on {len(tracks)} tracks"


# ---- pictures ----


def check_svg(name):
    root = xml.etree.ElementTree.fromstring(export(name, "svg", log=False).decode("utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [one for one in root.iter() if one.tag.endswith(("}script", "}image", "}foreignObject"))]
    shapes = [one for one in root.iter() if one.tag.endswith(("}path", "}rect"))]
    assert len(shapes) > 30, len(shapes)
    return f"{len(shapes)} shapes"


def check_png(name):
    data = export(name, "png", "--width", "800", log=False)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    pixels, at, width = b"", 8, 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            pixels += body
        at += 12 + size
    assert width == 800 and height > 200 and depth == 8, (width, height, depth)
    raw = zlib.decompress(pixels)
    channels = {2: 3, 6: 4}[color]
    assert len(raw) == height * (1 + width * channels)
    assert len(set(raw)) > 20, "an empty picture"
    return f"{width} x {height}"


# ---- texts ----


def check_csv(name, snapshot):
    rows = list(csv.DictReader(io.StringIO(export(name, "csv").decode("utf-8"), newline="")))
    known = dict(blocks_of(snapshot))
    assert len(rows) == len(known)
    for row in rows:
        block = known[int(row["address"], 16)]
        assert [int(row["bytes"]), int(row["requested"]), row["layer"]] == block[1:4]
        assert row["tag"] == snapshot["tags"][block[6]], row
        assert row["name"] == (block[7] if len(block) > 7 else "")
    stats = dict(csv.reader(io.StringIO(export(name, "csv", "--table", "stats").decode("utf-8"), newline="")))
    assert all(stats[key] == ("" if value is None else str(value)) for key, value in snapshot["stats"].items())
    chunks = list(csv.DictReader(io.StringIO(export(name, "csv", "--table", "chunks").decode(), newline="")))
    assert len(chunks) == sum(len(r["chunks"]) for r in snapshot["ranges"])
    events = list(csv.DictReader(io.StringIO(export(name, "csv", "--table", "events").decode(), newline="")))
    assert max(int(e["sequence"]) for e in events) < snapshot["log"]["records"], "events up to the snapshot only"
    return f"{len(rows)} blocks, {len(events)} events"


def check_prometheus(name, snapshot):
    text = export(name, "prometheus", log=False).decode("utf-8")
    assert text.endswith("\n")
    values = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            assert re.fullmatch(r"# TYPE vmpool_[a-z0-9_]+ (gauge|counter)", line), line
            continue
        match = re.fullmatch(r'(vmpool_[a-z0-9_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)+)\} (\d+)', line)
        assert match, line
        assert match[1] not in values, match[1]
        values[match[1]] = int(match[3])
    stats = {key: value for key, value in snapshot["stats"].items() if value is not None}
    assert len(values) == len(stats)
    assert values["vmpool_mapped_bytes"] == stats["mapped"] and values["vmpool_allocs_total"] == stats["allocs"]
    assert values["vmpool_blocks"] == stats["blocks"]
    return f"{len(values)} metrics"


def check_folded(name, snapshot):
    total = 0
    for line in export(name, "folded").decode("utf-8").splitlines():
        frames, count = line.rsplit(" ", 1)
        assert frames.split(";")[0] in ("slab", "mid", "buddy", "region"), line
        total += int(count)
    assert total == sum(row[1] for _, row in blocks_of(snapshot))
    return f"{total} bytes"


def check_stacks():
    """A log with stacks: the frames come out, and their bytes are the live ones."""
    lines = export("stacks", "folded").decode("utf-8").splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == snapshot_of("stacks")["stats"]["live"]
    assert any(";" in line and "+0x" in line for line in lines), lines[:3]
    return f"{len(lines)} lines"


def main():
    names = ["sparse"] + (["hta", "azure"] if os.environ.get("VMPOOL_TRACES") else [])
    os.makedirs(folder, exist_ok=True)
    failed = 0
    for name in names + ["stacks"]:
        subprocess.run([inputs, name, folder], check=True)
    checks = [("stacks", check_stacks)]
    for name in names:
        snapshot = snapshot_of(name)
        checks += [(f"{name} {f.__name__}", lambda f=f, n=name, s=snapshot: f(n, s))
                   for f in (check_memory_viz, check_perfetto, check_csv, check_prometheus, check_folded)]
        checks += [(f"{name} layout", lambda n=name, s=snapshot: check_perfetto(n, s, log=False))]
        checks += [(f"{name} {f.__name__}", lambda f=f, n=name: f(n)) for f in (check_svg, check_png)]
    for title, check in checks:
        try:
            print(f"ok      {title}: {check()}")
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"FAILED  {title}: {type(error).__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
