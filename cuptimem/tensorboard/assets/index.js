/* The Memory page: loads its parts, asks for recordings, and keeps what is chosen. TensorBoard calls render(). */
"use strict";

import { drawSteps, drawTimeline, resize } from "./curves.js";
import { drawRuns } from "./runs.js";
import { drawComparison, drawLeaks, drawPeak, drawRanks, drawSteps as drawStepsTable } from "./tables.js";

const RELOAD_MS = 30_000;  // TensorBoard's own interval
const MORE_MS = 500;  // while recordings are waiting to be read

/** What is chosen, and what came from TensorBoard. */
const state = {
    list: { recordings: [], broken: [], notes: [], waiting: 0 },
    chosen: null,    // id of the recording that is shown
    compared: null,  // id of the one it is compared with
    job: null,  // whose ranks are shown in the place of a recording
    device: null,
    filter: "",
    loaded: new Map(),  // recordings by id
};

let places, again;

export async function render() {
    document.documentElement.lang = "en";
    document.title = "Memory";
    followTheme();
    const parts = await ask("./parts");
    await Promise.all(parts.styles.map(style));
    for (const name of parts.scripts)
        await script(name);
    const { element } = cuptimem;
    places = {
        side: element("nav", { id: "side", "aria-label": "Recordings" }),
        main: element("main", { id: "shown", tabindex: "-1" }),
    };
    document.body.append(places.side, places.main);
    await reload();
    setInterval(() => document.hidden || reload(), RELOAD_MS);
    new ResizeObserver(redrawSoon()).observe(places.main);
}

function style(name) {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = `./${name}`;
    return loaded(link);
}

function script(name) {
    const made = document.createElement("script");
    made.src = `./${name}`;
    return loaded(made);
}

function loaded(element) {
    return new Promise((resolve, reject) => {
        element.addEventListener("load", resolve);
        element.addEventListener("error", () => reject(new Error(`${element.src || element.href} did not load`)));
        document.head.append(element);
    });
}

/** Light or dark as TensorBoard is: it marks its own body, of which this page is a frame. */
function followTheme() {
    const outer = window.parent === window ? null : window.parent.document.body;
    const set = () => {
        const dark = outer ? outer.classList.contains("dark-mode") : false;
        const theme = dark ? "dark" : "light";
        if (document.documentElement.dataset.theme === theme)
            return;
        document.documentElement.dataset.theme = theme;
        if (places)
            draw();
    };
    set();
    if (outer)
        new MutationObserver(set).observe(outer, { attributes: true, attributeFilter: ["class"] });
}

/** Curves have a fixed width: it follows the page's. */
function redrawSoon() {
    let width = 0, timer;
    return ([entry]) => {
        const now = Math.round(entry.contentRect.width);
        if (now === width)
            return;
        width = now;
        clearTimeout(timer);
        timer = setTimeout(resize, 100);
    };
}

async function ask(path) {
    const answer = await fetch(path);
    const content = await answer.json();
    if (!answer.ok)
        throw new Error(content.error || answer.statusText);
    return content;
}

async function reload() {
    const before = JSON.stringify(state.list), chosen = state.chosen, first = !state.list.waiting;
    try {
        state.list = await ask("./runs");
    } catch (error) {
        state.list = { recordings: [], broken: [], notes: [], waiting: 0, error: String(error.message || error) };
    }
    const ids = new Set(state.list.recordings.map((one) => one.id));
    for (const id of state.loaded.keys())
        state.loaded.delete(id);  // a file may have been written again
    if (!ids.has(state.chosen))
        state.chosen = state.list.recordings.at(-1)?.id ?? null;
    if (!ids.has(state.compared))
        state.compared = null;
    if (!state.list.recordings.some((one) => one.job === state.job))
        state.job = null;
    clearTimeout(again);  // a reload by the user or by the interval takes its place
    if (state.list.waiting)
        again = setTimeout(reload, MORE_MS);
    if (state.list.waiting && !first && chosen === state.chosen)
        drawRuns(places.side, state, actions);  // what is shown stays as it is
    else if (before !== JSON.stringify(state.list) || state.list.error)
        await show();
}

async function recording(id) {
    if (id === null)
        return null;
    if (!state.loaded.has(id)) {
        const data = await ask(`./data?id=${encodeURIComponent(id)}`);
        const entry = state.list.recordings.find((one) => one.id === id);
        state.loaded.set(id, { ...data, run: entry.run, label: label(entry) });
    }
    return state.loaded.get(id);
}

/** Which steps a recording is of. */
export function label(entry) {
    if (entry.steps === 0)
        return "no steps";
    if (entry.steps === null || entry.steps === undefined)
        return `from step ${entry.first_step}`;
    return entry.steps === 1
        ? `step ${entry.first_step}`
        : `steps ${entry.first_step} to ${entry.first_step + entry.steps - 1}`;
}

let shown = { one: null, other: null, changes: null, ranks: null, error: null };

/** Fetches what is chosen, and draws it. */
async function show() {
    const { chosen, compared, job } = state;
    let next;
    try {
        const { id } = state.list.recordings.findLast((one) => one.job === job) ?? {};
        const ranks = job === null ? null : (await ask(`./ranks?id=${encodeURIComponent(id)}`)).blocks;
        const [one, other] = await Promise.all([recording(chosen), recording(compared)]);
        const changes = other === null ? null : await ask(`./compare?before=${compared}&after=${chosen}`);
        next = { one, other, changes: changes?.devices ?? null, ranks, error: null };
    } catch (error) {
        next = { one: null, other: null, changes: null, ranks: null, error: String(error.message || error) };
    }
    if (chosen !== state.chosen || compared !== state.compared || job !== state.job)
        return;  // something else was chosen meanwhile
    shown = next;
    draw();
}

const actions = {
    choose(id) {
        state.chosen = id;
        state.job = null;
        if (state.compared === id)
            state.compared = null;
        return show();
    },
    compare(id) {
        state.compared = state.compared === id ? null : id;
        state.job = null;
        return show();
    },
    ranks(job) {
        state.job = state.job === job ? null : job;
        return show();
    },
    filter(text) {
        state.filter = text;
        drawRuns(places.side, state, actions);
    },
    device(name) {
        state.device = name;
        draw();
    },
    reload: () => reload(),
};

/** The whole of what is chosen, or why it is not there: never a part. */
function draw() {
    drawRuns(places.side, state, actions);
    try {
        drawShown();
    } catch (error) {
        places.main.replaceChildren(cuptimem.element("p", { class: "caveat", role: "alert" },
            `This recording cannot be drawn: ${String(error.message || error)}`));
    }
}

/** Instead of a recording. */
function nothing() {
    const text = state.list.broken.length ? "No recording can be shown. The list says why."
        : "There is no recording in this folder yet.";
    return [cuptimem.element("p", {}, text)];
}

function drawShown() {
    const { element } = cuptimem;
    if (shown.error !== null || state.list.error) {
        places.main.replaceChildren(element("p", { class: "caveat", role: "alert" }, shown.error || state.list.error));
        return;
    }
    if (shown.ranks !== null) {
        places.main.replaceChildren();
        drawRanks(section("Ranks", "ranks"), shown.ranks);
        return;
    }
    if (shown.one === null) {
        places.main.replaceChildren(...nothing());
        return;
    }
    const names = shown.one.devices.map((device) => device.name);
    const name = names.includes(state.device) ? state.device : names[0];
    places.main.replaceChildren(heading(), ...caveats(), ...(names.length > 1 ? [tabs(names, name)] : []));
    const pick = (data) => data?.devices.find((device) => device.name === name) ?? null;
    const device = pick(shown.one), other = pick(shown.other);
    if (device === null) {
        places.main.append(element("p", {}, "Nothing was allocated by PyTorch while this was recorded."));
        return;
    }
    places.main.append(tiles(device, other));
    const timeline = section("Memory over time", "timeline");
    if (other === null && shown.one.chart)
        timeline.append(picture(name));
    else
        drawTimeline(timeline, shown, device, other);
    const changes = shown.changes?.find((one) => one.device === name);
    if (changes)
        drawComparison(section("What the two peaks are made of", "comparison"), changes, shown);
    else
        drawPeak(section("What the peak is made of", "peak"), device);
    drawLeaks(section("Leaks", "leaks"), shown.one);
    const steps = section("Steps", "steps");
    drawSteps(steps, shown, device);
    drawStepsTable(steps, shown.one, name);
}

let drawn = { data: null, name: null, theme: null, root: null };

/** The picture of `cuptimem timeline`, of one device. It keeps its view while the same recording is shown. */
function picture(name) {
    const { theme } = document.documentElement.dataset, data = shown.one.chart;
    if (drawn.data !== data || drawn.name !== name || drawn.theme !== theme) {
        const root = cuptimem.element("div", {});
        places.main.append(root);  // it measures itself
        cuptimemTimeline(root, { ...data, devices: data.devices.filter((device) => device.name === name) });
        drawn = { data, name, theme, root };
    }
    return drawn.root;
}

function section(title, id) {
    const { element } = cuptimem;
    const made = element("section", { id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title));
    places.main.append(made);
    return made;
}

function heading() {
    const { element } = cuptimem;
    const made = element("header", {}, element("h1", {}, `${shown.one.run} · ${shown.one.label}`));
    made.append(element("p", { class: "faint" }, shown.one.title));
    if (shown.other)
        made.append(
            element("p", { class: "against" },
                element("span", { class: "key other" }), `compared with ${shown.other.run} · ${shown.other.label} `,
                element("button", { type: "button", onclick: () => actions.compare(state.compared) }, "End comparison")),
        );
    return made;
}

function caveats() {
    const { element } = cuptimem;
    const lines = [...shown.one.caveats];
    if (shown.other)
        lines.push(...shown.other.caveats.map((line) => `${shown.other.run}: ${line}`));
    return lines.map((line) => element("p", { class: "caveat" }, `! ${line}`));
}

function tabs(names, chosen) {
    const { element } = cuptimem;
    const made = element("div", { class: "devices controls", role: "tablist", "aria-label": "Devices" });
    for (const name of names)
        made.append(element("button", {
            type: "button", role: "tab", "aria-selected": String(name === chosen), onclick: () => actions.device(name),
        }, name));
    return made;
}

/** Large numbers, and how far they are from those of the other recording. */
function tiles(device, other) {
    const { element, size } = cuptimem;
    const made = element("dl", { class: "tiles" });
    const tile = (name, value, rest = "", attributes = {}) =>
        made.append(element("div", attributes, element("dt", {}, name), element("dd", {}, value),
            element("dd", { class: "faint" }, rest)));
    const bytes = (name, key, rest) => {
        const value = device[key], was = other?.[key];
        const change = was === undefined || was === null ? rest : `${signed(value - was)} against ${size(was)}`;
        tile(name, size(value), change, { "data-tile": key, "data-bytes": value, title: `${exact(value)} bytes` });
    };
    bytes("Peak", "peak", device.peak_step === null ? `${exact(device.peak_blocks)} blocks` : `in step ${exact(device.peak_step)}`);
    if (device.reserved_peak !== null)
        bytes("Reserved at most", "reserved_peak", "by the allocator");
    bytes("Alive at the end", "end", `${size(device.start)} at the start`);
    bytes("Allocated in all", "allocated", `in ${exact(device.allocations)} blocks`);
    const leaks = shown.one.leaks.filter((leak) => leak.verdict);
    const lost = leaks.reduce((sum, leak) => sum + leak.total_bytes_per_step, 0);
    tile("Leaks", String(leaks.length), leaks.length ? `+${size(Math.round(lost))} a step` : shown.one.leak_headline,
        { "data-tile": "leaks", class: leaks.length ? "bad" : null });
    return made;
}

export function exact(number) {
    return number.toLocaleString("en");
}

export function signed(bytes) {
    return bytes === 0 ? "the same" : `${bytes > 0 ? "+" : "-"}${cuptimem.size(Math.abs(bytes))}`;
}
