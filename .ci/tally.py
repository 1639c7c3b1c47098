#!/usr/bin/env python3
"""tally.py EVENTS: counts the test cases of one `bazel test` run.

EVENTS is what --build_event_json_file wrote. Failed and skipped cases are listed on standard error, with their reasons;
standard output gets "PASSED FAILED SKIPPED". A target that did not build or left no test.xml counts as one failure, and
so does a test that was skipped for want of traces or of a browser: CI has them.
"""
import json
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree


def cases_of(output):
    """Yields (name, "passed" | "failed" | "skipped", reason) for each case of a test.xml."""
    path = urllib.request.url2pathname(urllib.parse.urlparse(output["uri"]).path)
    for case in ElementTree.parse(path).iter("testcase"):
        name = f'{case.get("classname", "")}.{case.get("name", "")}'
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed", ""
        elif skipped is not None:
            yield name, "skipped", " ".join((skipped.get("message") or skipped.text or "").split())
        elif case.get("result") not in ("suppressed",):
            yield name, "passed", ""


def tally_result(label, result, counts):
    xml = [output for output in result.get("testActionOutput", []) if output["name"] == "test.xml"]
    cases = list(cases_of(xml[0])) if xml else []
    for name, outcome, reason in cases:
        if outcome == "skipped" and ("VMPOOL_TRACES" in reason or "chromium" in reason):
            print(f"failed: {label} {name}: skipped for want of what CI has: {reason}", file=sys.stderr)
            outcome = "failed"
        elif outcome != "passed":
            print(f"{outcome}: {label} {name} {reason}", file=sys.stderr)
        counts[outcome] += 1
    if result["status"] not in ("PASSED", "FLAKY") and not any(outcome == "failed" for _, outcome, _ in cases):
        print(f'failed: {label}: {result["status"]}', file=sys.stderr)
        counts["failed"] += 1


def main(events_file):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with open(events_file, encoding="utf-8") as events:
        for line in events:
            event = json.loads(line)
            if "testResult" in event.get("id", {}):
                tally_result(event["id"]["testResult"]["label"], event["testResult"], counts)
            elif "targetCompleted" in event.get("id", {}) and not event.get("completed", {}).get("success", False):
                print(f'failed: {event["id"]["targetCompleted"]["label"]} was not built', file=sys.stderr)
                counts["failed"] += 1
    print(counts["passed"], counts["failed"], counts["skipped"])


if __name__ == "__main__":
    main(sys.argv[1])
