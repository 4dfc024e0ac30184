"""The shape of a plan: what is refused, with which code, at which place; and what a good one becomes."""

from __future__ import annotations

import copy
import io
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from hipplan.errors import Diagnostic, HipplanError, PlanError, printable
from hipplan.language.loader import load
from hipplan.language.model import PlanModel, Requires
from hipplan.language.model.describe import field_docs, models_below
from hipplan.language.model.plan import Plan
from tests.conftest import WHOLE

ROOT = Path(__file__).parents[2]
PLANS = sorted((ROOT / "plans").glob("*.yaml"))
MODELS = [Plan, *models_below(Plan).values()]


def refused(text: str) -> list[tuple[str, int, int]]:
    return [(d.code, d.span.line, d.span.column) if d.span else (d.code, 0, 0) for d in diagnostics(text)]


def diagnostics(text: str) -> list[Diagnostic]:
    with pytest.raises(PlanError) as raised:
        load(io.StringIO(f"hipplan: 1\n{text}\n"))
    return list(raised.value.diagnostics)


def objects(text: str) -> Any:
    return load(io.StringIO(f"hipplan: 1\n{text}\n")).objects


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("allocatons: {}", "HP101", 1),
        ("streams: {s: {devise: gpu.0}}", "HP101", 15),
        ("buffers: {b: {kind: managed, size: 1, advice: [{advise: read_mostly, rang: {}}]}}", "HP101", 70),
        ("buffers: {b: {kind: pinned, size: 1, attach: host}}", "HP101", 38),
        ("allocations: {a: {size: 1, offset: 0}}", "HP109", 28),
        ("allocations: {a: {size: 1, shareable: fabric}}", "HP109", 39),
        ("allocations: {a: {}}", "HP102", 15),
        ("buffers: {b: {size: 1}}", "HP102", 11),
        ("peers: [{device: gpu.0}]", "HP102", 9),
        ("allocations: {a: {size: true}}", "HP103", 25),
        ("allocations: {a: {size: 1.5}}", "HP103", 25),
        ("allocations: {a: {size: .nan}}", "HP103", 25),
        ("allocations: {a: {size: [1]}}", "HP103", 25),
        ("allocations: {a: {size: }}", "HP103", 25),
        ("allocations: {a: {size: 1, count: true}}", "HP103", 35),
        ("allocations: {a: {size: 1, count: '2'}}", "HP103", 35),
        ("requires: {gpu: yes}", "HP103", 17),
        ("requires: {gpu: 1}", "HP103", 17),
        ("streams: [copy]", "HP103", 10),
        ("streams: {copy}", "HP103", 15),
        ("peers: 1", "HP103", 8),
        ("name: 5", "HP103", 7),
        ("peers: some", "HP104", 8),
        ("buffers: {b: {kind: registered, file: ''}}", "HP105", 39),
        ("buffers: {b: {kind: devise, size: 1}}", "HP104", 21),
        ("reservations: {r: {size: 1, access: {gpu.0: w}}}", "HP104", 45),
        ("allocations: {a: {size: 0}}", "HP105", 25),
        ("allocations: {a: {size: 1, count: 0}}", "HP105", 35),
        ("allocations: {a: {size: 1, count: 1000000000000}}", "HP023", 35),
        ("reservations: {r: {size: 1, alignment: 3}}", "HP105", 40),
        ("reservations: {r: {size: 1, address: 0}}", "HP105", 38),
        ("devices: {d: {pci: '1'}}", "HP105", 20),
        ("devices: {d: {uuid: x}}", "HP105", 21),
        ("devices: {d: {ordinal: -1}}", "HP105", 24),
        ("requires: {hip: six}", "HP105", 17),
        ("allocations: {a b: {size: 1}}", "HP106", 15),
        ("allocations: {'': {size: 1}}", "HP106", 15),
        ("devices: {host: {}}", "HP106", 11),
        ("devices: {d: {ordinal: 1, pci: '00:00.0'}}", "HP107", 32),
        ("devices: {d: {pci: '00:00.0', count: 2}}", "HP107", 38),
        ("reservations: {r: {}}", "HP107", 19),
        ("reservations: {r: {size: 1, address_policy: exact}}", "HP107", 45),
        ("allocations: {a: {size: 1, bind: x}}", "HP107", 34),
        ("allocations: {a: {size: 1, bind: x, shareable: posix_fd, count: 2}}", "HP107", 65),
        ("buffers: {b: {kind: registered}}", "HP107", 14),
        ("buffers: {b: {kind: registered, file: x, bind: y}}", "HP107", 48),
        ("buffers: {b: {kind: registered, anonymous: {size: 1}, size: 1}}", "HP107", 61),
        ("buffers: {b: {kind: pinned, size: 1, uncached: true, coherent: true}}", "HP107", 64),
        ("buffers: {b: {kind: managed, size: 1, advice: [{advise: accessed_by}]}}", "HP211", 57),
        ("buffers: {b: {kind: managed, size: 1, advice: [{advise: read_mostly, device: host}]}}", "HP211", 78),
        ("allocations: {a: {size: 18446744073709551616}}", "HP013", 25),
        ("allocations: {a: {size: -1}}", "HP013", 25),
        ("allocations: {a: {size: 64Mb}}", "HP013", 25),
        ("allocations: {a: {size: 0x}}", "HP013", 25),
    ],
)
def test_the_shape_of_a_plan(text: str, code: str, column: int) -> None:
    assert refused(text) == [(code, 2, column)]


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("buffers: {b: {kind: device, size: 1, device: cpu}}", "HP201", 46),
        ("buffers: {b: {kind: device, size: 1, device: host}}", "HP201", 46),
        ("buffers: {b: {kind: device, size: 1, device: gpu.2000}}", "HP201", 46),
        ("devices: {gpu: {count: 2}}\nbuffers: {b: {kind: device, size: 1, device: gpu}}", "HP201", 46),
        ("reservations: {r: {size: 1, access: {cpu: r}}}", "HP201", 38),
        ("reservations: {r: {size: 1, access: {cpu.*: r}}}", "HP201", 38),
        ("buffers: {b: {kind: managed, size: 1, prefetch: [{to: x}]}}", "HP201", 55),
        ("peers: [{device: gpu.0, peer: x}]", "HP201", 31),
        ("reservations: {r: {mappings: [{allocation: a}]}}", "HP202", 44),
        ("reservations: {r: {mappings: [{allocation: a.*}]}}", "HP202", 44),
        ("buffers: {b: {kind: managed, size: 1, prefetch: [{to: host, stream: s}]}}", "HP203", 69),
        ("buffers: {b: {kind: managed, size: 1, attach_to: {stream: s}}}", "HP203", 59),
        ("streams: {x: {}}\nbuffers: {x: {kind: device, size: 1}}", "HP204", 11),
        ("buffers: {x.1: {kind: device, size: 1}, x: {kind: device, size: 1, count: 2}}", "HP204", 41),
        ("peers: [{device: gpu.0, peer: gpu.0}]", "HP209", 31),
        ("devices: {a: {ordinal: 0}, b: {ordinal: 0}}", "HP214", 41),
        ("devices: {a: {ordinal: 0, count: 3}, b: {ordinal: 2}}", "HP214", 51),
        ("devices: {a: {current: true}, b: {current: true}}", "HP214", 44),
        ("devices: {a: {pci: 'c1:00.0'}, b: {pci: 'C1:00.0'}}", "HP214", 41),
        ("devices: {a: {uuid: GPU-0123456789abcdef}, b: {uuid: 0123456789ABCDEF}}", "HP214", 54),
        ("peers: [{device: gpu.0, peer: gpu.1}, {device: gpu.0, peer: gpu.1}]", "HP209", 39),
        ("buffers: {b: {kind: managed, size: 9, prefetch: [{to: host, range: {at: 9}}]}}", "HP208", 73),
        ("buffers: {b: {kind: managed, size: 9, prefetch: [{to: host, range: {at: 8, size: 2}}]}}", "HP208", 82),
        ("buffers: {b: {kind: device, size: 1, count: 24999}, c: {kind: device, size: 1, count: 2}}", "HP023", 87),
    ],
)
def test_names_refer_to_what_exists(text: str, code: str, column: int) -> None:
    assert refused(text) == [(code, 1 + len(text.splitlines()), column)]


@pytest.mark.parametrize("version", ["2", "true", "1.0", "'1'", "", "[1]", "9999999999999999999999999"])
def test_only_version_1_is_read(version: str) -> None:
    with pytest.raises(PlanError) as raised:
        load(io.StringIO(f"hipplan: {version}\n"))

    assert [d.code for d in raised.value.diagnostics] == ["HP108"]


MAPPED = "allocations: {a: {size: 4}, k: {size: 2, count: 3}}\nreservations: {r: {access: {gpu.0: rw}, %s}}"


@pytest.mark.parametrize(
    ("reservation", "code"),
    [
        ("mappings: [{allocation: a, at: 0}, {allocation: k.0, at: 3}]", "HP205"),
        ("mappings: [{allocation: k.0, at: 3}, {allocation: a, at: 0}]", "HP205"),
        ("mappings: [{allocation: k.*, at: 0}, {allocation: a, at: 4}]", "HP205"),
        ("mappings: [{allocation: a, at: 0}, {allocation: a, at: 0}]", "HP205"),
        ("size: 9, mappings: [{allocation: k.*}, {allocation: a}]", "HP206"),
        ("size: 5, mappings: [{allocation: k.*}]", "HP206"),
        ("mappings: [{allocation: a, size: 5}]", "HP207"),
    ],
)
def test_mappings_fit(reservation: str, code: str) -> None:
    assert [error[0] for error in refused(MAPPED % reservation)] == [code]


GROWS = "regions: {r: {size: 2MiB, chunk: 2MiB, reserve: "


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("reservations: {r: {size: 128TiB}}", 26),
        ("reservations: {r: {size: 1MiB, alignment: 128TiB}}", 43),
        ("reservations: {r: {size: 127TiB}, s: {size: 600GiB}, t: {size: 424GiB}}", 26),
        ("reservations: {r: {address: 4096, address_policy: exact, size: 8191PiB}}", 64),
        ("reservations: {r: {size: 18446744073709551615}}", 26),
        ("reservations: {r: {size: 8192PiB, alignment: 8192PiB}}", 26),
        (f"{GROWS}18446744073709551615}}}}", 49),
        (f"{GROWS}129TiB}}}}", 49),
        (f"reservations: {{s: {{size: 64TiB}}}}\n{GROWS}64TiB}}}}", 26),
        ("allocations: {a: {size: 1}}\nreservations: {r: {mappings: [{allocation: a, at: 128TiB}]}}", 16),
    ],
)
def test_ranges_take_fewer_addresses_than_a_process_has(text: str, column: int) -> None:
    assert [(code, at) for code, _, at in refused(text)] == [("HP105", column)]


@pytest.mark.parametrize(
    "text",
    [
        "reservations: {r: {size: 127TiB}, s: {size: 512GiB}}",
        "reservations: {r: {size: 1MiB, address: 4096, address_policy: exact, alignment: 128TiB}}",
        "regions: {r: {size: 200TiB}}",  # that memory is refused by a machine
    ],
)
def test_ranges_may_take_all_addresses_but_a_few(text: str) -> None:
    objects(text)


def test_mappings_find_their_places() -> None:
    text = (
        MAPPED
        % "mappings: [{allocation: k.*}, {allocation: a, at: 16, size: 3}, {allocation: a}, {allocation: a, at: 8}]"
    )

    mappings = objects(text).reservations["r"].mappings

    assert [(m.name, m.allocation, m.at, m.size, m.follows, m.whole) for m in mappings] == [
        ("r[0]", "k.0", 0, 2, False, True),
        ("r[1]", "k.1", 2, 2, True, True),
        ("r[2]", "k.2", 4, 2, True, True),
        ("r[3]", "a", 16, 3, False, False),
        ("r[4]", "a", 19, 4, True, True),
        ("r[5]", "a", 8, 4, False, True),
    ]


def test_access_is_by_device_with_patterns_first() -> None:
    text = (
        "devices: {gpu: {count: 3}}\nallocations: {a: {size: 1}}\n"
        "reservations: {r: {access: {gpu.1: r, gpu.*: rw, host: none},"
        " mappings: [{allocation: a}, {allocation: a, access: {}}]}}"
    )

    first, second = objects(text).reservations["r"].mappings

    assert first.access == {"gpu.0": "rw", "gpu.1": "r", "gpu.2": "rw", "host": "none"}
    assert second.access == {}


def test_devices_without_selectors_take_the_ordinals_that_are_free() -> None:
    result = objects(
        "devices: {a: {}, b: {ordinal: 0}, gpu: {count: 2}, u: {pci: '00:00.0'}, c: {ordinal: 4, count: 2}}"
    )

    assert {name: device.ordinal for name, device in result.devices.items()} == {
        "a": 1, "b": 0, "gpu.0": 2, "gpu.1": 3, "u": None, "c.0": 4, "c.1": 5
    }  # fmt: skip


def test_without_devices_there_are_as_many_as_the_plan_speaks_of() -> None:
    for text in (
        "buffers: {b: {kind: device, size: 1, device: gpu.2}}",
        "reservations: {r: {size: 1, access: {gpu.2: r}}}",
        "buffers: {b: {kind: managed, size: 1, prefetch: [{to: gpu.2}]}}",
        "peers: [{device: gpu.2, peer: gpu.0}]",
        "streams: {s: {device: gpu.2}}",
    ):
        assert list(objects(text).devices) == ["gpu.0", "gpu.1", "gpu.2"]
    assert list(objects("").devices) == ["gpu.0"]


def test_all_peers_are_all_directed_pairs() -> None:
    pairs = [(link.device, link.peer) for link in objects("devices: {gpu: {count: 3}}\npeers: all").peers]

    assert len(pairs) == 6
    assert all(a != b for a, b in pairs)


def test_data_in_python_is_a_plan_too_and_its_keys_are_the_places() -> None:
    plan = load({"hipplan": 1, "buffers": {"b": {"kind": "device", "size": "1KiB"}}})
    with pytest.raises(PlanError) as raised:
        load({"hipplan": 1, "buffers": {"b": {"kind": "device", "size": object()}}})

    assert plan.objects.buffers["b"].spec.size == 1024
    assert str(plan.span("buffers", "b", "size")) == "buffers.b.size"
    assert plan.span("x") is None
    (error,) = raised.value.diagnostics
    assert (error.code, error.span and error.span.line, error.to_json()["span"]["path"]) == (
        "HP103",
        0,
        "buffers.b.size",
    )
    assert str(error).startswith("buffers.b.size: error[HP103]: ")
    with pytest.raises(PlanError) as raised:
        mapping = {"each": 2, "allocation": "x"}
        load({"hipplan": 1, "reservations": {"r": {"mappings": [mapping]}}, "buffers": {"r": {"kind": "pinned"}}})
    assert [str(diagnostic).partition(": error")[0] for diagnostic in raised.value.diagnostics] == [
        "buffers.r",
        "reservations.r.mappings[0].allocation",
    ]


@pytest.mark.parametrize(
    ("plan", "path", "said"),
    [
        ({"buffers": {"\ud800": {"kind": "pinned", "size": 1}}}, "buffers.\ud800", "'\ud800' cannot be a name"),
        ({"devices": {"a": {}, "b\ud800c": {"ordinal": 0}}}, "devices.b\ud800c", "'b\ud800c' cannot be a name"),
        ({"\ud800": 1}, "\ud800", "there is no key '\ud800' here"),
        ({"buffers": {"b": {"kind": "pinned", "\ud800": 1}}}, "buffers.b.\ud800", "there is no key '\ud800' here"),
        ({"contents": {"b": {"\ud800": 1}}}, "contents.b.\ud800", "there is no key '\ud800' here"),
        ({"name": "\ud800"}, "name", "'name' must be text in UTF-8"),
    ],
)
def test_a_key_that_utf_8_does_not_have_is_named(plan: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(PlanError) as raised:
        load({"hipplan": 1, **plan})

    (diagnostic,) = raised.value.diagnostics
    shown = printable(f"{diagnostic.span}: {diagnostic.summary}")
    assert shown == f"{path}: {said}".replace("\ud800", "\N{REPLACEMENT CHARACTER}")


def test_below_such_a_key_places_are_right() -> None:
    with pytest.raises(PlanError) as raised:
        load({"hipplan": 1, "regions": {"\ud800": {"size": 0}}})

    assert [(d.code, str(d.span).count(".")) for d in raised.value.diagnostics] == [("HP106", 1), ("HP105", 2)]


def test_a_wrong_size_of_a_region_is_one_mistake() -> None:
    (reported,) = diagnostics("regions: {k: {device: gpu.0, size: 16M}}")
    (empty,) = diagnostics("regions: {k: {device: gpu.0, size: null}}")

    assert (reported.code, reported.hint) == ("HP013", "write 16MiB, or auto")
    assert (empty.code, empty.hint) == ("HP103", "write bytes, or 64MiB, or auto")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("requires: {hip: 6.1}", 'write it as ">=6.1" or ">=6.1,<8"'),
        ("name: 5", "put it in quotes"),
        ("requires: {gpu: 'true'}", "remove the quotes"),
        ("buffers: {b: {kind: device, size: $kv}}", "write $(kv)"),
        ('buffers: {b: {kind: device, size: 1, count: "${kv}"}}', "write $(kv)"),
    ],
)
def test_hints_say_how_it_is_written(text: str, hint: str) -> None:
    assert [diagnostic.hint for diagnostic in diagnostics(text)] == [hint]


def test_the_digest_is_of_the_layout_and_not_of_its_text() -> None:
    first = load(io.StringIO("hipplan: 1\nvars: {n: 2}\nbuffers: {b: {kind: device, size: $(n)}}\n"))
    same = load(io.StringIO("# other text\nhipplan: 1\nvars: {n: 2}\nbuffers:\n  b: {size: 2, kind: device}\n"))
    other = load(io.StringIO("hipplan: 1\nvars: {n: 2}\nbuffers: {b: {kind: device, size: $(n)}}\n"), {"n": 3})

    assert first.digest == same.digest != other.digest


TENSORS = {"regions": {"r": {"tensors": {n: {"dtype": "f32", "shape": [s]} for n, s in (("a", 64), ("b", 1024))}}}}
EVENTS = {"buffers": {"b": {"kind": "pinned", "size": 8}, "c": {"kind": "pinned", "size": 8}}}


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (TENSORS, ("regions", "r", "tensors")),
        ({"devices": {"x": {"ordinal": 0}, "y": {"ordinal": 1}}, **EVENTS}, ("devices",)),
        ({"allocations": {"kv.1": {"size": "2MiB"}, "kv.0": {"size": "4MiB"}},
          "reservations": {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "kv.*"}]}}}, ("allocations",)),
        (EVENTS | {"contents": {"b": {"value": 1, "dtype": "u8"}, "c": {"copy_of": "b"}}}, ("contents",)),
        (EVENTS, ("buffers",)),
    ],
)  # fmt: skip
def test_the_digest_is_of_the_order_in_which_things_come(plan: dict[str, Any], path: tuple[str, ...]) -> None:
    other = copy.deepcopy({"hipplan": 1, **plan})
    things = reduce(getitem, path, other)
    for name in list(things)[:-1]:  # these go behind the last one
        things[name] = things.pop(name)

    digest = load(other).digest
    assert digest != load({"hipplan": 1, **plan}).digest
    for thing in things.values():
        for key in list(thing)[:-1]:
            thing[key] = thing.pop(key)
    assert load(dict(reversed(other.items()))).digest == digest


@pytest.mark.parametrize(
    ("spec", "version", "allowed"),
    [
        (">=6.1", "6.1.0", True),
        (">=6.1", "6.0.9", False),
        (">=6.1,<7", "7.0.1", False),
        ("==7.2", "7.2.53211", True),
        ("==7.2", "7.3.0", False),
        (">6.1", "6.10", True),
        ("<=7.2", "7.2.53211", True),
        ("<=7.2", "7.3.0", False),
        (">7.2", "7.2.53211", False),
        (">7.2.1", "7.2.53211", True),
        ("<7.2", "7.2.53211", False),
        (None, "5.2", True),
    ],
)
def test_versions_compare_by_number(spec: str | None, version: str, allowed: bool) -> None:
    assert Requires(hip=spec).hip_allows(version) is allowed


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.__name__))
def test_every_field_says_what_it_means_and_where_it_comes_from(model: type[BaseModel]) -> None:
    if model is PlanModel:
        return
    docs = field_docs(model)

    assert model.__doc__
    assert set(docs) == set(model.model_fields)
    assert all(text.endswith(".") for text in docs.values()), docs


def _mutations(data: Any) -> st.SearchStrategy[Any]:
    """A plan with one piece replaced, removed or added at a random place."""
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]), st.just({}),
        st.sampled_from(["gpu.0", "gpu.*", "host", "kv.*", "$(x)", "$(", "2MiB", -1, 2**70, [{}], {"each": 3}]),
    )  # fmt: skip

    @st.composite
    def mutate(draw: st.DrawFn) -> Any:
        plan = copy.deepcopy(data)
        for _ in range(draw(st.integers(1, 3))):
            node = plan
            while isinstance(node, (dict, list)) and node:
                keys = list(node) if isinstance(node, dict) else list(range(len(node)))
                key = draw(st.sampled_from(keys))
                if not isinstance(node[key], (dict, list)) or not node[key] or draw(st.booleans()):
                    break
                node = node[key]
            if not isinstance(node, (dict, list)) or not node:
                continue
            action = draw(st.sampled_from(["replace", "remove", "add"]))
            if action == "remove":
                del node[key]
            elif action == "add" and isinstance(node, dict):
                node[draw(st.text(max_size=6) | st.sampled_from(["each", "count", "include", "vars", "kind"]))] = draw(
                    junk
                )
            else:
                node[key] = draw(junk)
        return plan

    return mutate()


OF_A_WHOLE_FILE = {"HP010", "HP014"}
"""What is no plan at all: there is no place in it to point at."""


@pytest.mark.in_parts
@pytest.mark.parametrize("path", PLANS, ids=lambda path: str(path.stem))
@settings(max_examples=50 if WHOLE else 20)
@given(data=st.data())
def test_a_mutated_plan_is_good_or_gives_diagnostics_at_places(path: Path, data: st.DataObject) -> None:
    plan = data.draw(_mutations(yaml.safe_load(path.read_text())))
    for source in (plan, io.StringIO(yaml.safe_dump(plan))):
        try:
            load(source)
        except HipplanError as error:
            assert error.diagnostics
            assert str(error)
            if not isinstance(source, dict):
                assert all(d.span is not None for d in error.diagnostics if d.code not in OF_A_WHOLE_FILE)


def test_a_registered_file_is_not_cut_at_a_nul(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(4096))
    document = {"hipplan": 1, "buffers": {"b": {"kind": "registered", "file": f"{tmp_path}/data\0junk"}}}

    with pytest.raises(PlanError, match=r"HP105.*'file' cannot be"):
        load(document)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("includ: x", "did you mean 'include'?"),
        ("buffers: {b: {kind: device, size: 1, eech: 2}}", "did you mean 'each'?"),
        ("regions: {r: {device: gpu.0, tensors: {t: {dtype: u8, shape: [1], eech: 2}}}}", "did you mean 'each'?"),
        ("reservations: {r: {size: 1, mappings: [{allocation: a, eech: 2}]}}", "did you mean 'each'?"),
        (
            "buffers: {b: {kind: device, size: 1, x: 2}}",
            "allowed keys are count, rank, kind, device, size, reserve, each",
        ),
        ("requires: {eech: 1}", "allowed keys are hip, gpu, vmm, managed, xnack"),
    ],
)
def test_hints_know_the_keys_that_are_gone_after_expanding(text: str, hint: str) -> None:
    assert hint in [diagnostic.hint for diagnostic in diagnostics(text) if diagnostic.code == "HP101"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("buffers: {b: {kind: registered, file: ''}}", "'file' cannot be empty\n"),
        (
            "regions: {r: {tensors: {t: [4, 4]}}}",
            "hint: write tensors: {name: {dtype: bf16, shape: [16, 256]}}",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        objects(text)
    assert words in str(caught.value)
