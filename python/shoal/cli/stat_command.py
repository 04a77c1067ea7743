"""`shoal stat`: the model services that run on this machine."""

from __future__ import annotations

from typing import Any

import typer

from shoal.cli.console import closing_json, fail, say


def register(app: typer.Typer) -> None:
    app.command("stat")(stat)


def stat(
    address: str = typer.Argument(None, help="Only the service at this address (ModelService.address)."),
    json_output: bool = typer.Option(False, "--json", help="End with one line of JSON."),
) -> None:
    """Show the model services of this machine: requests, batches, latencies.

    Exits with 1 when there is none at the address.
    """
    from shoal.serve.observing import absence, observe, services

    addresses = services() if address is None else [address]
    found = [seen for seen in map(observe, addresses) if seen is not None]
    if address is not None and not found:
        fail(absence(address))
    if json_output:
        closing_json({"services": found})
        return
    if not found:
        say("no model service runs on this machine")
    for service in found:
        say(f"{service['address']}  made by process {service['pid']}, {_instances(service)}")
        for name, model in service["models"].items():
            say(f"  {name}  {_line(model, service['seconds'])}")


def _instances(service: dict[str, Any]) -> str:
    n, running = service["instances"], service["running"]
    if running < n:
        return f"{running} of {n} servers running" if running else "no server runs now: these are the last counts"
    return "1 server" if n == 1 else f"{n} servers"


def _line(model: dict[str, Any], seconds: float) -> str:
    """One model's counters."""

    def ms(values: dict[str, Any], part: str) -> str:
        return f"{1000 * values[part]:.3g}"

    latency, wait = model["latency"], model["queue_wait"]
    parts = [
        f"{model['clients']} clients",
        f"{model['rows']:,} rows ({model['rows'] / max(seconds, 1e-9):,.1f}/s)",
        f"{model['batch_rows']['mean']:.2g} a batch",
        f"latency p50 {ms(latency, 'p50')} p99 {ms(latency, 'p99')} ms",
        f"waiting p50 {ms(wait, 'p50')} p99 {ms(wait, 'p99')} ms",
        f"weights {model['version']}",
    ]
    if model["padding_waste"]:
        parts.append(f"{100 * model['padding_waste']:.1f} % padding")
    parts += [f"{model[f'{kind}_rows']:,} {kind}" for kind in ("failed", "expired", "dropped") if model[f"{kind}_rows"]]
    return ", ".join(parts)
