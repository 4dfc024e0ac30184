"""How values of a plan are written, for hints to those who wrote something else."""

from __future__ import annotations

FORMS = {
    "inside": "write it as module:function",
    "pci": 'write it as "0000:c1:00.0"',
    "uuid": "write it as `hipplan machine` shows it",
    "hip": 'write it as ">=6.1" or ">=6.1,<8"',
    "arch": "write it as gfx942",
    "file": "write it as data/weights.bin",
    "hip_version": 'write it as "7.2.53211", in quotes',
}
"""How a text with a form is written, by its key."""
WRITTEN = {
    "access": "access: {gpu.0: rw}",
    "advice": "advice: [{advise: read_mostly}]",
    "anonymous": "anonymous: {size: 4MiB}",
    "attach_to": "attach_to: {stream: name}",
    "include": "include: [other.yaml]",
    "mappings": "mappings: [{allocation: name}]",
    "peers": "peers: all, or peers: [{device: gpu.0, peer: gpu.1}]",
    "prefetch": "prefetch: [{to: gpu.0}]",
    "range": "range: {at: 0, size: 4MiB}",
    "requires": 'requires: {hip: ">=6.1"}',
    "shape": "shape: [16, 256]",
    "tensors": "tensors: {name: {dtype: bf16, shape: [16, 256]}}",
    "vars": "vars: {layers: 80}",
    "devices": "devices: {gpu: {count: 2}}",
    "allocations": "allocations: {name: {size: 1GiB}}",
    "reservations": "reservations: {name: {mappings: [{allocation: name}]}}",
    "regions": "regions: {name: {size: 1GiB}}",
    "buffers": "buffers: {name: {kind: pinned, size: 1MiB}}",
    "streams": "streams: {name: {device: gpu.0}}",
    "contents": "contents: {name: {value: 0}}",
    "vary": "vary: {size: [64MiB, 1GiB]}",
    "env": "env: {HSA_XNACK: [0, 1]}",
    "only": "only: [{size: 64MiB}]",
    "not": "not: [{size: 64MiB}]",
    "measure": "measure: [copy, latency]",
    "run": "run: [./stream, --times, 20]",
    "metrics": "metrics: {bandwidth: 'Triad: (\\S+) GB/s'}",
}
"""How lists and mappings are written, for who wrote something else."""
