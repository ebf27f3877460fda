/* The list of recordings at the side. */
"use strict";

import { exact, label } from "./index.js";

const BROKEN = 100;  // files that are named

export function drawRuns(place, state, actions) {
    const { element } = cuptimem;
    const focused = document.activeElement?.dataset?.key;
    const filter = element("input", {
        type: "search", placeholder: "Filter runs", "aria-label": "Filter runs", "data-key": "filter",
        oninput: (event) => actions.filter(event.target.value),
    });
    filter.value = state.filter;
    const bar = element("div", { class: "bar" }, filter,
        element("button", { type: "button", "data-key": "reload", onclick: actions.reload, title: "Look for new recordings" }, "Reload"));
    const words = state.filter.toLowerCase();
    const shown = state.list.recordings.filter((one) => one.run.toLowerCase().includes(words));
    const runs = new Map();
    for (const one of shown)
        runs.set(one.run, [...(runs.get(one.run) ?? []), one]);
    const lists = [...runs].map(([run, recordings]) => group(run, recordings, state, actions));
    const jobs = new Map();  // the runs of each that are ranks
    for (const one of shown)
        if (one.job !== undefined)
            jobs.set(one.job, (jobs.get(one.job) ?? new Set()).add(one.run));
    const together = [...jobs].filter(([, ranks]) => ranks.size > 1).map(([job, ranks]) => element("button", {
        type: "button", class: "job", "data-key": `job ${job}`, onclick: () => actions.ranks(job), "aria-pressed": String(job === state.job),
        title: "Why the ranks differ: the last recording of each",
    }, `${exact(ranks.size)} ranks of ${job === "." ? "this folder" : job}`));
    const top = state.list.recordings.reduce((most, one) => Math.max(most, one.devices[0]?.peak ?? 0), 1);
    place.replaceChildren(bar, ...notes(state.list), ...together, ...lists, ...broken(state.list.broken));
    for (const bar of place.querySelectorAll("[data-peak]"))
        bar.style.width = `${(100 * Number(bar.dataset.peak)) / top}%`;
    if (focused)
        [...place.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focused)?.focus();
}

function group(run, recordings, state, actions) {
    const { element, size } = cuptimem;
    const list = element("ul", {});
    for (const one of recordings) {
        const peak = one.devices[0];
        const when = new Date(one.start_realtime_ns / 1e6);
        const choose = element("button", {
            type: "button", class: "recording", "data-key": one.id, onclick: () => actions.choose(one.id),
            "aria-current": one.id === state.chosen && state.job === null ? "true" : null, title: `${one.name}\n${when.toLocaleString()}`,
        });
        choose.append(
            element("span", { class: "what" }, label(one)),
            element("span", { class: "number" }, peak ? size(peak.peak) : "nothing"),
            element("span", { class: "whole" }, element("span", { "data-peak": peak?.peak ?? 0 })),
            element("span", { class: "faint" }, `${when.toLocaleTimeString()}${peak ? ` · ${peak.name}` : ""}`),
        );
        if (one.leaks)
            choose.append(element("span", { class: "mark bad" }, one.leaks === 1 ? "1 leak" : `${exact(one.leaks)} leaks`));
        const row = element("li", {}, choose);
        if (one.id !== state.chosen)
            row.append(element("button", {
                type: "button", class: "compare", "data-key": `compare ${one.id}`, onclick: () => actions.compare(one.id),
                "aria-pressed": String(one.id === state.compared), title: "Compare the shown recording with this one",
            }, one.id === state.compared ? "compared" : "compare"));
        list.append(row);
    }
    return element("section", {}, element("h2", { title: run }, run === "." ? "(this folder)" : run), list);
}

/** What is not in the list, and why. */
function notes(list) {
    const { element } = cuptimem;
    const waiting = list.waiting ? [`${exact(list.waiting)} more recordings are being read.`] : [];
    return [...waiting, ...list.notes].map((note) => element("p", { class: "note", role: "status" }, note));
}

/** Files that cannot be shown are named, with the reason. */
function broken(files) {
    const { element } = cuptimem;
    if (!files.length)
        return [];
    const list = element("ul", {});
    for (const one of files.slice(0, BROKEN))
        list.append(element("li", {}, element("code", {}, `${one.run}/${one.name}`), element("span", {}, ` ${one.why}`)));
    if (files.length > BROKEN)
        list.append(element("li", {}, `${exact(files.length - BROKEN)} more`));
    return [element("section", { class: "broken", role: "alert" }, element("h2", {}, "Cannot be shown"), list)];
}
