"""Runs every comparison: `make bench`. BENCH_ROUNDS=3 makes it short."""

from bench import agent_hello, cli_import, many, relay, run_true, spawn


def main() -> None:
    for module in (cli_import, agent_hello, run_true, relay, spawn, many):
        for comparison in module.run():
            print(comparison, flush=True)


if __name__ == "__main__":
    main()
