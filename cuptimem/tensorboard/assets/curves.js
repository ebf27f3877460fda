/* Curves: memory over time, and per step. */
"use strict";

import { exact } from "./index.js";

const HEIGHT = 230;
const [BLUE, ORANGE, GREEN] = ["#0072b2", "#e69f00", "#009e73"];
const SKY = "#56b4e9";

function ink(name) {
    const probe = cuptimem.element("span", { style: `color: var(--${name})` });
    document.body.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
}

function seconds(ns) {
    return ns / 1e9;
}

/** Blue on dark ground is lighter. */
function blue() {
    return document.documentElement.dataset.theme === "dark" ? SKY : BLUE;
}

function axis(text, values) {
    return {
        stroke: ink("faint"), grid: { stroke: ink("line"), width: 1 }, ticks: { stroke: ink("line"), width: 1 },
        label: text, labelSize: 16, labelGap: -6, labelFont: "12px system-ui", font: "11px system-ui", ...values,
    };
}

function sizes() {
    return axis(null, { size: 76, values: (_, marks) => marks.map((mark) => cuptimem.size(mark)), incrs: powers() });
}

/** Distances of marks on an axis of bytes: 1, 2, 4, 8 ... */
function powers() {
    return Array.from({ length: 50 }, (_, power) => 2 ** power);
}

function value(_, bytes) {
    return bytes === null || bytes === undefined ? "–" : cuptimem.size(bytes);
}

/** Never so narrow that the distance between two marks is lost in their value. */
function wide(_, low, top) {
    return low === null ? [null, null] : [low, Math.max(top, low + 1e-6)];
}

let plots = [];

/** All curves as wide as their places are now. */
export function resize() {
    plots = plots.filter(({ holder }) => holder.isConnected);
    for (const { chart, holder } of plots)
        chart.setSize({ width: Math.max(300, holder.clientWidth), height: HEIGHT });
}

function plot(place, options, data) {
    const holder = cuptimem.element("div", { class: "curve" });
    place.append(holder);
    const chart = new uPlot({
        width: Math.max(300, holder.clientWidth || place.clientWidth), height: HEIGHT,
        legend: { live: true }, cursor: { drag: { x: true, y: false } }, ...options,
    }, data, holder);
    plots.push({ chart, holder });
}

/** One x for both recordings: the curves of each, with gaps where it has no point. */
function joined(...tables) {
    return uPlot.join(tables);
}

function curve(device) {
    const rows = device.timeline;
    return [rows.map((row) => seconds(row[0])), rows.map((row) => row[2]), rows.map((row) => row[1]), rows.map((row) => row[3])];
}

export function drawTimeline(place, shown, device, other) {
    const { element, size } = cuptimem;
    if (device.timeline.length === 0) {
        place.append(element("p", { class: "faint" }, "The recording has no points of this device."));
        return;
    }
    const [x, high, low, reserved] = curve(device);
    const has = reserved.some((bytes) => bytes !== null);
    const name = other ? `this: allocated` : "allocated";
    const series = [
        { label: "seconds", value: (_, at) => (at === null || at === undefined ? "–" : at.toFixed(3)) },
        { label: name, stroke: blue(), width: 1.5, fill: `${BLUE}33`, paths: uPlot.paths.stepped({ align: 1 }), value },
        { label: "fewest in the interval", stroke: `${BLUE}88`, width: 1, paths: uPlot.paths.stepped({ align: 1 }), value, show: false },
    ];
    let data = [x, high, low];
    if (has) {
        data.push(reserved);
        series.push({ label: "reserved", stroke: GREEN, width: 1.5, dash: [5, 4], paths: uPlot.paths.stepped({ align: 1 }), value });
    }
    if (other) {
        const [otherX, otherHigh] = curve(other);
        data = joined(data, [otherX, otherHigh]);
        series.push({
            label: "other: allocated", stroke: ORANGE, width: 1.5, spanGaps: true, paths: uPlot.paths.stepped({ align: 1 }), value,
        });
        for (const one of series.slice(1))
            one.spanGaps = true;
    }
    plot(place, {
        series,
        axes: [axis("seconds since the recording's start"), sizes()],
        scales: { x: { time: false, range: wide }, y: { range: (_, low, top) => [0, (top || 1) * 1.1] } },
        hooks: {
            drawClear: [(chart) => bands(chart, shown.one, device)],
            draw: [(chart) => mark(chart, seconds(device.peak_ns), device.peak)],
        },
    }, data);
    const words = shown.one.steps.length ? "; bands are steps" : "";
    place.append(element("p", { class: "faint" },
        `Peak: ${size(device.peak)} after ${seconds(device.peak_ns).toFixed(3)} s${words}. Drag to zoom, double-click to see all.`));
}

/** Every second step is shaded. */
function bands(chart, data, device) {
    const steps = data.steps.filter((row) => row[2] === device.name);
    const { left, top, width, height } = chart.bbox;
    if (steps.length === 0 || steps.length > width / 3)
        return;
    chart.ctx.save();
    chart.ctx.fillStyle = ink("raised");
    for (const row of steps) {
        if (row[0] % 2)
            continue;
        const from = Math.max(left, chart.valToPos(seconds(row[3]), "x", true));
        const to = Math.min(left + width, chart.valToPos(seconds(row[4]), "x", true));
        if (to > from)
            chart.ctx.fillRect(from, top, to - from, height);
    }
    chart.ctx.restore();
}

/** The peak: a ring with its bytes. */
function mark(chart, x, y) {
    const { min, max } = chart.scales.x;
    if (x < min || x > max)
        return;
    const ctx = chart.ctx, ratio = devicePixelRatio;
    const at = chart.valToPos(x, "x", true), height = chart.valToPos(y, "y", true);
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = ink("warning");
    ctx.lineWidth = 2 * ratio;
    ctx.beginPath();
    ctx.arc(at, height, 4 * ratio, 0, 2 * Math.PI);
    ctx.stroke();
    ctx.font = `600 ${12 * ratio}px system-ui`;
    const right = at > chart.bbox.left + chart.bbox.width - 120 * ratio;
    ctx.textAlign = right ? "right" : "left";
    ctx.textBaseline = "bottom";
    ctx.fillText(`peak ${cuptimem.size(y)}`, at + (right ? -8 : 8) * ratio, height - 2 * ratio);
    ctx.restore();
}

function perStep(data, name) {
    const rows = data.steps.filter((row) => row[2] === name);
    return [rows.map((row) => row[0]), rows.map((row) => row[6]), rows.map((row) => row[7])];
}

export function drawSteps(place, shown, device) {
    const { element } = cuptimem;
    const own = perStep(shown.one, device.name);
    if (own[0].length === 0) {
        place.append(element("p", { class: "faint" }, "No steps were seen in this recording."));
        return;
    }
    place.append(element("p", { class: "faint" }, `Counted by ${shown.one.clock}.`));
    const points = { show: own[0].length < 80, size: 5 };
    const series = [
        { label: "step", value: (_, step) => (step === null || step === undefined ? "–" : exact(step)) },
        { label: shown.other ? "this: peak" : "peak", stroke: blue(), width: 1.5, points, value, spanGaps: true },
        { label: shown.other ? "this: at its end" : "alive at its end", stroke: GREEN, width: 1.5, points, value, spanGaps: true },
    ];
    let data = own;
    if (shown.other) {
        const theirs = perStep(shown.other, device.name);
        if (theirs[0].length) {
            data = joined(own, theirs.slice(0, 2));
            series.push({ label: "other: peak", stroke: ORANGE, width: 1.5, points, value, spanGaps: true });
        }
    }
    plot(place, {
        series,
        axes: [axis("step", { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000, 1000000] }), sizes()],
        scales: { x: { time: false }, y: { range: (_, low, top) => [0, (top || 1) * 1.1] } },
    }, data);
}
