"""paper.py - the figures of bench/execute as a table and a chart, and compared with the goals. A
part that was not measured is omitted.
"""
import chart

SHOWN = {"print": "`print(1)`", "numpy": "NumPy"}


def three(s):
    return f"{s['p50']:.2f} / {s['p95']:.2f} / {s['p99']:.2f} ({s['n']})"


def middle(values):
    return values[len(values) // 2]


# --- goals ---


def ratio(result, part, work, peer):
    ms = result.get(part, {}).get(work, {}).get("ms", {})
    return ms[peer]["p50"] / ms["cove"]["p50"] if peer in ms and "cove" in ms else None


def most(result, template):
    found = [m["totalKiB"] for m in result.get("memory", []) if m["template"] == template and not m.get("absent")]
    return max(found) / 1024 if found else None


def goals(result):
    rows = []

    def goal(text, value, limit, shown, at_most=False):
        met = None if value is None else value <= limit if at_most else value >= limit
        rows.append({"goal": text, "met": met, "measured": "not measured" if value is None else shown.format(value)})

    goal("`print(1)` in at most 1/15 of bubblewrap's time (p50, one client)", ratio(result, "latency", "print", "bwrap"), 15, "1/{:.1f}")
    goal("`print(1)` in at most 1/200 of Docker Engine's time", ratio(result, "latency", "print", "docker"), 200, "1/{:.0f}")
    goal("NumPy in at most 1/60 of bubblewrap's time", ratio(result, "latency", "numpy", "bwrap"), 60, "1/{:.1f}")
    goal("at least 250 fresh sandboxes a second, load generator included", result.get("sustained", {}).get("print", {}).get("perSecond"), 250, "{:.0f}/s")
    goal("an idle plain member holds at most 1.5 MiB", most(result, "python"), 1.5, "{:.2f} MiB", at_most=True)
    goal("an idle NumPy member holds at most 3 MiB", most(result, "python-data"), 3.0, "{:.2f} MiB", at_most=True)
    warm = next((b for b in result.get("burst", []) if b["pool"] >= b["claims"]), None)
    goal("300 at once on a warm pool of 300 within 0.5 s", middle(warm["allMs"]) / 1000 if warm else None, 0.5, "{:.2f} s", at_most=True)
    live = [m.get("found", 0) for m in result.get("memory", []) if m["members"] >= 4000]
    goal("4,000 live members", max(live) if live else None, 4000, "{}")
    return rows


# --- tables ---


def compared(result, part, head):
    yield head
    yield "| --- | --- | --- | --- | --- |"
    for name, title in [("cove", "cove, `POST /v1/execute`"), *([("engine", "cove engine, without HTTP")] if part == "latency" else []), *((r["name"], r["title"]) for r in result["runners"])]:
        cells = []
        for work in ("print", "numpy"):
            ms = result[part][work]["ms"].get(name)
            cells += [three(ms), "1" if name == "cove" else f"{ms['p50'] / result[part][work]['ms']['cove']['p50']:.1f}x"] if ms else ["–", "–"]
        yield f"| {title} | {' | '.join(cells)} |"
    for peer in result["absent"]:
        yield f"| {peer['title']} | absent: {peer['reason'].replace('|', '/')} | | | |"


def latency(result):
    yield from compared(result, "latency", "| one client | `print(1)`, p50 / p95 / p99 (n) | times cove | NumPy, p50 / p95 / p99 (n) | times cove |")
    found = result["latency"]
    yield ""
    yield (f"Milliseconds, from the first byte of the request to the last of the answer for cove, from start to exit for the others. Of cove's requests the pool answered "
           + ", ".join(f"{found[w]['hits']} of {found[w]['hits'] + found[w]['misses']} ({SHOWN[w]})" for w in found) + f"; steal {max(found[w]['stealPercent'] for w in found)} %.")


def clients(result):
    found = result["clients"]
    yield from compared(result, "clients", f"| {found['print']['clients']} clients | `print(1)`, p50 / p95 / p99 (n) | times cove | NumPy, p50 / p95 / p99 (n) | times cove |")
    yield ""
    rates = [f"{title} {found['print']['perSecond'][name]:.0f} and {found['numpy']['perSecond'][name]:.0f}" for name, title in
             [("cove", "cove"), *((r["name"], r["title"]) for r in result["runners"])] if name in found["print"]["perSecond"]]
    yield (f"A second, in slices of {found['print']['seconds']} s (`print(1)` and NumPy): {', '.join(rates)}. Steal {max(found[w]['stealPercent'] for w in found)} %.")


def sustained(result):
    found = result["sustained"]
    yield f"| for {found['seconds']} s, {found['clients']} clients | fresh sandboxes a second | p50 / p95 / p99 ms | from the pool | processors busy | steal |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for work in ("print", "numpy"):
        s = found[work]
        yield (f"| {SHOWN[work]} | {s['perSecond']:.0f} | {s['p50']:.1f} / {s['p95']:.1f} / {s['p99']:.1f} | {s['hits']} of {s['n']} | {s['busyPercent']} % | {s['stealPercent']} % |")


def memory(result):
    yield "| idle members | KiB each: PSS | kernel, its cgroup | kernel, whole machine | PSS and kernel | loss of free memory | made in |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for m in result["memory"]:
        name = f"{m['members']} of `{m['template']}`"
        if m.get("absent"):
            yield f"| {name} | absent: {m['absent']} | | | | | |"
            continue
        cgroup = f"{m['kernelCgroupKiB']:.0f}" if m["kernelCgroupKiB"] is not None else "–"
        yield f"| {name} | {m['pssKiB']:.0f} | {cgroup} | {m['kernelMachineKiB']:.0f} | {m['totalKiB']:.0f} | {m['availableKiB']:.0f} | {m['seconds']:.0f} s |"


def rest(result):
    for b in result.get("burst", []):
        yield (f"- {b['claims']} requests at once, on a pool of {b['pool']}: all answered after {middle(b['allMs']):.0f} ms (median of {len(b['allMs'])}, "
               f"{b['allMs'][0]:.0f} to {b['allMs'][-1]:.0f}), half of them after {middle(b['p50Ms']):.0f} ms; steal {b['stealPercent']} %.")
    if "idle" in result:
        i = result["idle"]
        yield (f"- The first answer after {i['seconds']} s without a request: " + ", ".join(
            f"{SHOWN[w]} {i[w]['firstMs']:.2f} ms (the next: {i[w]['nextMs']['p50']:.2f}; {i[w]['processes']} processes woke up {i[w]['wakeUps']} times meanwhile)" for w in ("print", "numpy")) + ".")
    if "kill" in result:
        k = result["kill"]
        yield (f"- A sandbox that computes and holds 64 MiB, ended: answered after {three(k['answeredMs'])} ms, nothing of it left (processes, cgroups) after "
               f"{three(k['goneMs'])} ms.")


def markdown(result):
    host = result["host"]
    lines = ["<!-- written by bench/execute -->", ""]
    for part, write in (("latency", latency), ("clients", clients), ("sustained", sustained), ("memory", memory)):
        if part in result:
            lines += [*write(result), ""]
    lines += [*rest(result), ""]
    lines += [f"{host['cores']} cores ({host['cpu']}{', a virtual machine' if host['guest'] else ''}), Linux {host['kernel']}, cgroup {host['cgroup']}, {host['memoryMiB'] / 1024:.0f} GiB; "
              f"{result['date']}; audit log and policy on; other programs kept it at most {result['busyPercent']} % busy when a piece of the run began.", "",
              "| goal | measured | |", "| --- | --- | --- |"]
    lines += [f"| {g['goal']} | {g['measured']} | {'met' if g['met'] else '–' if g['met'] is None else 'missed'} |" for g in result["goals"]]
    return "\n".join(lines) + "\n"


# --- chart ---


def panels(result):
    titles = {"cove": "cove", **{r["name"]: r["title"] for r in result["runners"]}}
    for work, title in (("print", "print(1)"), ("numpy", "NumPy")):
        if "latency" in result:
            ms = result["latency"][work]["ms"]
            yield chart.Panel(f"{title}, one client", f"milliseconds, p50 of {result['latency'][work]['rounds']} interleaved rounds",
                              [(titles[n], ms[n]["p50"], n == "cove") for n in titles if n in ms])
    if "clients" in result:
        found = result["clients"]["print"]
        yield chart.Panel(f"print(1) a second, {found['clients']} clients", f"slices of {found['seconds']} s that take turns",
                          [(titles[n], found["perSecond"][n], n == "cove") for n in titles if n in found["perSecond"]])
    held = [m for m in result.get("memory", []) if not m.get("absent")]
    if held:
        yield chart.Panel("An idle member", "MiB, PSS and kernel memory", [(f"{m['members']} {m['template']}", m["totalKiB"] / 1024, True) for m in held])


def picture(result):
    found = list(panels(result))
    if not found:
        return None
    label = "One answer from a fresh sandbox: " + ", ".join(f"{title} {value:.2f}" for title, value, _ in found[0].rows)
    return chart.draw(found, result, "execute", label)
