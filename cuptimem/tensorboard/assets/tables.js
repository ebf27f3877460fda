/* Tables: the peak by line, two peaks side by side, leaks, steps. */
"use strict";

import { exact, signed } from "./index.js";

const FIRST = 12;       // rows before "Show all"
const FIRST_STEPS = 20;

const PHASES = ["forward", "backward", "optimizer", "data", "other", "before start"];

function bytes(value, name = "td") {
    return cuptimem.element(name, { class: "number", title: `${exact(value)} bytes`, "data-bytes": value }, cuptimem.size(value));
}

/** gathered: a row in the place of those from a number on, until all are shown. */
function table(place, columns, rows, first, gathered = () => []) {
    const { element } = cuptimem;
    const head = element("tr", {}, ...columns.map(([name, kind]) => element("th", { class: kind ?? null, scope: "col" }, name)));
    const body = element("tbody", {}, ...rows.slice(0, first));
    const made = element("table", {}, element("thead", {}, head), body);
    place.append(element("div", { class: "scroll" }, made));
    if (rows.length > first) {
        const others = gathered(first);
        body.append(...others);
        const more = element("button", { type: "button", class: "all" }, `Show all ${exact(rows.length)} rows`);
        more.addEventListener("click", () => {
            for (const row of [...others, more])
                row.remove();
            body.append(...rows.slice(first));
        });
        place.append(more);
    }
    return made;
}

function phase(name) {
    return kind(name, name);
}

/** A category or a phase, in the colour of the phase. */
function kind(phase, text) {
    return cuptimem.element("td", {}, cuptimem.element("span", { class: `made p${Math.max(0, PHASES.indexOf(phase))}`, title: phase }, text));
}

function line(row) {
    const { element } = cuptimem;
    return element("td", { class: "place" }, element("code", { title: row.file || null }, row.where),
        element("span", { class: "faint" }, row.function ? ` ${row.function}` : ""),
        ...(row.parts ? [element("div", { class: "faint" }, row.parts)] : []));
}

function source(row) {
    return cuptimem.element("td", { class: "source" }, cuptimem.element("code", {}, row.code));
}

function share(part, whole) {
    const { element } = cuptimem;
    const percent = whole > 0 ? (100 * part) / whole : 0;
    const bar = element("span", { class: "part" });
    bar.style.width = `${percent}%`;
    return element("td", { class: "share" }, element("span", { class: "whole" }, bar), element("span", {}, `${percent.toFixed(0)} %`));
}

/** Where the largest part of a line was made, innermost first, behind a button. */
function stack(row) {
    const { element } = cuptimem;
    const cell = element("td", {});
    if (!row.stack.length)
        return cell;
    const details = element("details", {}, element("summary", {}, "stack"));
    details.addEventListener("toggle", () => {
        if (details.childElementCount === 1)
            details.append(element("ol", {}, ...row.stack.map((frame) => element("li", {}, element("code", {}, frame)))));
    });
    if (row.module)
        details.title = row.module;
    cell.append(details);
    return cell;
}

export function drawPeak(place, device) {
    const { element, size } = cuptimem;
    place.append(element("p", { class: "faint" },
        `${exact(device.peak_blocks)} blocks that were alive together, by the line that made them: ${size(device.peak)} on ${device.name}.`));
    for (const note of device.notes)
        place.append(element("p", { class: "faint" }, note));
    const heading = device.lines.some((row) => row.category) ? "category" : "phase"; // files of older versions have none
    const rows = device.lines.map((row) => element("tr", {}, bytes(row.bytes), share(row.bytes, device.peak),
        element("td", { class: "number" }, exact(row.count)), kind(row.phase, row.category || row.phase), line(row), source(row), stack(row)));
    const rest = device.rest;
    if (rest.bytes || rest.count)
        rows.push(element("tr", { class: "rest" }, bytes(rest.bytes), share(rest.bytes, device.peak),
            element("td", { class: "number" }, exact(rest.count)), element("td", {}),
            element("td", { colspan: "3" }, rest.lines ? `(${exact(rest.lines)} more lines)` : "(everything else)")));
    table(place, [["live", "number"], ["share"], ["blocks", "number"], [heading], ["line"], ["code"], [""]], rows, FIRST,
        (from) => {
            const left = [...device.lines.slice(from), rest], sum = (key) => left.reduce((all, row) => all + row[key], 0);
            return [element("tr", { class: "rest" }, bytes(sum("bytes")), share(sum("bytes"), device.peak),
                element("td", { class: "number" }, exact(sum("count"))), element("td", {}),
                element("td", { colspan: "3" }, `(${exact(left.length - 1 + rest.lines)} more lines)`))];
        });
}

export function drawComparison(place, changes, shown) {
    const { element, size } = cuptimem;
    const words = (value) => (value === null ? "not there" : size(value));
    place.append(element("p", { class: "faint" },
        `On ${changes.device}: ${words(changes.before)} in ${shown.other.run} (${shown.other.label}), ` +
        `${words(changes.after)} in ${shown.one.run} (${shown.one.label}). What changed most is first.`));
    const most = Math.max(1, ...changes.rows.map((row) => Math.abs(row.after - row.before)));
    const rows = changes.rows.map((row) => element("tr", {}, bytes(row.before), bytes(row.after),
        difference(row.after - row.before, most), line(row), source(row)));
    if (changes.rest.before || changes.rest.after)
        rows.push(element("tr", { class: "rest" }, bytes(changes.rest.before), bytes(changes.rest.after),
            difference(changes.rest.after - changes.rest.before, most),
            element("td", { colspan: "2" }, "(everything else)")));
    table(place, [["other", "number"], ["this", "number"], ["change", "number"], ["line"], ["code"]], rows, FIRST,
        (from) => {
            const left = [...changes.rows.slice(from), changes.rest], sum = (key) => left.reduce((all, row) => all + row[key], 0);
            const before = sum("before"), after = sum("after");
            return [element("tr", { class: "rest" }, bytes(before), bytes(after), difference(after - before, most),
                element("td", { colspan: "2" }, `(${exact(left.length - 1)} more lines)`))];
        });
}

function difference(change, most) {
    const { element } = cuptimem;
    const bar = element("span", { class: change > 0 ? "part more" : "part less" });
    bar.style.width = `${(100 * Math.abs(change)) / most}%`;
    return element("td", { class: "number change", title: `${exact(change)} bytes`, "data-bytes": change },
        element("span", { class: "whole" }, bar), element("span", {}, signed(change)));
}

export function drawLeaks(place, data) {
    const { element, size } = cuptimem;
    place.append(element("p", { class: "faint" }, data.leak_headline));
    if (!data.leaks.length)
        return;
    const rows = data.leaks.flatMap((leak) => [leak, ...leak.keeps]).map((leak) => {
        const about = leak.estimated ? "about " : "";
        return element("tr", { class: leak.verdict ? "bad" : null },
            element("td", {}, leak.verdict ? "leak" : leak.relation || `suspect: ${leak.reason}`),
            element("td", { class: "number" }, `${about}+${size(Math.round(leak.bytes_per_step))}`),
            element("td", { class: "number", "data-bytes": leak.bytes, title: `${exact(leak.bytes)} bytes` }, `${about}${size(leak.bytes)}`),
            element("td", { class: "number" }, exact(leak.count)),
            element("td", {}, leak.kind === "nodes" ? "graph nodes" : leak.device),
            element("td", {}, `${leak.first_step} to ${leak.last_step}`), line(leak), source(leak));
    });
    table(place, [["verdict"], ["a step", "number"], ["alive", "number"], ["blocks", "number"], ["of"], ["made in steps"], ["line"], ["code"]],
        rows, FIRST);
    if (data.leaks_left_out)
        place.append(element("p", { class: "caveat" }, `${exact(data.leaks_left_out)} more are not in this file.`));
}

export function drawSteps(place, data, device) {
    const { element } = cuptimem;
    const steps = data.steps.filter((row) => row[2] === device);
    if (!steps.length)
        return;
    const loops = new Set(steps.map((row) => row[1])).size > 1;
    const reserved = steps.some((row) => row[11] !== null);
    const columns = [["step", "number"], ...(loops ? [["loop"]] : []), ["time", "number"], ["at start", "number"], ["peak", "number"],
        ["at end", "number"], ...(reserved ? [["reserved", "number"]] : []), ["allocated", "number"], ["freed", "number"], ["blocks", "number"]];
    const rows = steps.map((row) => {
        const [step, loop, , begin, end, start, peak, atEnd, allocated, freed, allocations, held] = row;
        return element("tr", {}, element("td", { class: "number" }, exact(step)), ...(loops ? [element("td", {}, loop)] : []),
            element("td", { class: "number" }, `${((end - begin) / 1e6).toFixed(1)} ms`), bytes(start), bytes(peak), bytes(atEnd),
            ...(reserved ? [held === null ? element("td", {}) : bytes(held)] : []), bytes(allocated), bytes(freed),
            element("td", { class: "number" }, exact(allocations)));
    });
    table(place, columns, rows, FIRST_STEPS);
    if (data.steps_left_out)
        place.append(element("p", { class: "caveat" }, `${exact(data.steps_left_out)} rows in the middle are not in this file.`));
}

/** What `cuptimem ranks` says: lines of text and tables. */
export function drawRanks(place, blocks) {
    const { element } = cuptimem;
    for (const { text, style, names, rows } of blocks) {
        if (!names) {
            place.append(element("p", { class: style === "warning" ? "caveat" : style === "dim" ? "faint" : style || null }, text));
            continue;
        }
        const cells = rows.map((row) => element("tr", {}, ...row.map(([cell, number, code]) =>
            element("td", { class: number ? "number" : null }, code ? element("code", {}, cell) : cell))));
        table(place, names.map(([name, number]) => [name, number ? "number" : null]), cells, rows.length);
    }
}
