"""Prints the CPU kernel tables of this machine but the best one, which `make test` runs."""

import accel


def main() -> None:
    best = accel.open_cpu().info.isa
    for isa in ("avx512", "avx2", "neon", "base"):
        try:
            accel.open_cpu(isa=isa).close()
        except accel.Error:
            continue
        if isa != best:
            print(isa)


if __name__ == "__main__":
    main()
