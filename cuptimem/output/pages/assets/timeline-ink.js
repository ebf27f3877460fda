/* How the timeline's pictures look: colours and hatching of groups, times in words, a canvas as sharp as the screen. */
"use strict";

const timelineInk = (() => {
    const BASE = cuptimem.colours.slice(0, 7); // the eighth, grey, is everything else
    const REST = { light: "#c3c8cf", dark: "#4a505b" };

    /** Mixes a colour with white (amount > 0) or black (amount < 0). */
    function shade(colour, amount) {
        const to = amount > 0 ? 255 : 0, part = Math.abs(amount);
        const mixed = [1, 3, 5].map((i) => Math.round(parseInt(colour.slice(i, i + 2), 16) * (1 - part) + to * part));
        return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
    }

    // Violet, which no group has: [on a light ground, on a dark one].
    const PHASES = { data: ["#e5dcf5", "#4b3d6b"], forward: ["#b9a3e3", "#7459b5"], backward: ["#7a52c7", "#a98de8"], optimizer: ["#3d1d7a", "#e0d4fa"] };

    /** The colour of a phase, by its name, or of a slot: seven base colours, then lighter, then darker ones, and so on. */
    function colour(slot, dark) {
        if (Object.hasOwn(PHASES, slot)) return PHASES[slot][Number(dark)];
        if (typeof slot === "string") return colour(-1, dark);
        if (slot < 0) return dark ? REST.dark : REST.light;
        const round = Math.floor(slot / BASE.length) % 3;
        const mixed = shade(BASE[slot % BASE.length], [0, 0.45, -0.38][round]);
        return dark ? shade(mixed, -0.12) : shade(mixed, 0.12);
    }

    /** Stripes: of a leak, of a compacted stretch, of groups beyond the first seven. */
    function stripes(context, ink, gap, width, backwards = false) {
        const ratio = window.devicePixelRatio || 1, size = Math.round(gap * ratio);
        const tile = document.createElement("canvas");
        tile.width = tile.height = size;
        const pen = tile.getContext("2d");
        pen.strokeStyle = ink;
        pen.lineWidth = width * ratio;
        for (const shift of [-size, 0, size]) {
            pen.beginPath();
            pen.moveTo(shift, backwards ? 0 : size);
            pen.lineTo(shift + size, backwards ? size : 0);
            pen.stroke();
        }
        return context.createPattern(tile, "repeat");
    }

    /** A colour of the page's style sheet, as it is at this moment. */
    function variable(root, name) {
        const probe = cuptimem.element("span");
        probe.style.color = `var(${name})`;
        root.append(probe);
        const found = getComputedStyle(probe).color;
        probe.remove();
        return found;
    }

    function isDark(root) {
        const [red, green, blue] = (variable(root, "--ground").match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
        return red + green + blue < 384;
    }

    /** A time as people read it: 12.3 ms, 4.56 s, 3 min 20 s. */
    function time(nanoseconds, step = 0) {
        const value = Math.abs(nanoseconds), sign = nanoseconds < 0 ? "-" : "";
        const digits = (unit) => {
            if (!step) return 2;
            let found = 0;
            while (found < 6 && Math.abs(Math.round((step / unit) * 10 ** found) / 10 ** found - step / unit) > 1e-9) found++;
            return found;
        };
        if (value === 0) return "0";
        if (value < 1e6) return `${sign}${(value / 1e3).toFixed(digits(1e3))} µs`;
        if (value < 1e9) return `${sign}${(value / 1e6).toFixed(digits(1e6))} ms`;
        if (value < 120e9) return `${sign}${(value / 1e9).toFixed(digits(1e9))} s`;
        const seconds = Math.round(value / 1e9), minutes = Math.floor(seconds / 60);
        return minutes < 120 ? `${sign}${minutes} min ${seconds % 60} s` : `${sign}${Math.floor(minutes / 60)} h ${minutes % 60} min`;
    }

    /** 12,345 */
    function count(value) {
        return Math.round(value).toLocaleString("en-US");
    }

    /** Distances between ticks of bytes: powers of two, which sizes are. */
    function byteTicks(min, max, space) {
        let step = 1;
        while ((max - min) / step > space) step *= 2;
        const ticks = [];
        for (let value = Math.ceil(min / step) * step; value <= max; value += step) ticks.push(value);
        return ticks;
    }

    /** Gives a canvas the size of its box in pixels of the screen, and returns its context in pixels of the page. */
    function fit(canvas, width, height) {
        const ratio = window.devicePixelRatio || 1;
        const [across, down] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
        if (canvas.width !== across || canvas.height !== down) {
            canvas.width = across;
            canvas.height = down;
        }
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
        const context = canvas.getContext("2d");
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.clearRect(0, 0, width, height);
        return context;
    }

    return { colour, shade, stripes, variable, isDark, time, count, byteTicks, fit };
})();
