"""Prints what the CPU device says of itself, as JSON."""

import json

import accel

if __name__ == "__main__":
    info = accel.open_cpu().info
    print(json.dumps({"device": f"{info.name}, {info.isa}"}))
