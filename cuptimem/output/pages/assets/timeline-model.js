/* What the timeline's data says: series of a device for any grouping, the table of a moment or of a range, blocks.
   Times are nanoseconds, sizes bytes; both are exact below 2^53. */
"use strict";

const timelineModel = (() => {
    const SERIES = 12; // drawn apart; all others are "everything else"
    const CANDIDATES = 256; // whose series are computed to choose these: a hundred thousand would be a gigabyte
    const REST = -1;

    /** Differences back to values. */
    function sums(steps) {
        const values = new Float64Array(steps.length);
        let value = 0;
        for (let i = 0; i < steps.length; i++) values[i] = value += steps[i];
        return values;
    }

    /** The last place whose value is at most `value`; -1 where there is none. */
    function before(sorted, value) {
        let low = 0, high = sorted.length;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (sorted[middle] <= value) low = middle + 1;
            else high = middle;
        }
        return low - 1;
    }

    /** A chart as the page holds it, with typed arrays. */
    function unpackChart(raw) {
        const at = raw.intervals, rows = raw.entries;
        const begin = sums(at.begin);
        return {
            begin: raw.begin, end: raw.end, hidden: raw.hidden,
            leastBlock: raw.leastBlock, leastSurvivor: raw.leastSurvivor,
            at: {
                begin, highTime: begin.map((time, i) => time + at.highTime[i]),
                low: at.low, high: at.high, reserved: at.reserved, allocated: at.allocated, freed: at.freed,
                phases: at.phases,
            },
            contributors: raw.contributors,
            rows: {
                contributor: sums(rows.contributor), interval: rows.interval,
                high: rows.high, end: rows.end, allocated: rows.allocated, freed: rows.freed,
            },
            blocks: raw.blocks,
        };
    }

    /** Calls visit(contributor, first row, row behind the last) for each contributor of a chart, by its global number. */
    function eachContributor(chart, visit) {
        const column = chart.rows.contributor;
        for (let first = 0; first < column.length;) {
            let behind = first + 1;
            while (behind < column.length && column[behind] === column[first]) behind++;
            visit(chart.contributors[column[first]], first, behind);
            first = behind;
        }
    }

    /** The last of the rows [first, behind) that is not behind the interval; first - 1 where there is none. */
    function rowAt(intervals, first, behind, interval) {
        let low = first, high = behind;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (intervals[middle] <= interval) low = middle + 1;
            else high = middle;
        }
        return low - 1;
    }

    class Device {
        constructor(model, raw) {
            this.model = model;
            this.raw = raw;
            this.name = raw.name;
            this.peak = raw.peak;
            this.charts = raw.charts.map(unpackChart);
            const steps = raw.steps;
            this.steps = { index: steps.index, loop: steps.loop, begin: sums(steps.begin), length: steps.length, peak: steps.peak };
            this.pieces = this._pieces();
            this.blocks = this._blocks();
        }

        get overview() {
            return this.charts[0];
        }

        /**
         * For each number of charts that are drawn from, stretches that follow each other: of the overview, with the
         * finer charts in their places.
         */
        _pieces() {
            const whole = (chart, begin, end) => {
                const from = Math.max(0, before(chart.at.begin, begin));
                return { chart, begin, end, from, to: Math.max(from, before(chart.at.begin, end - 1)) + 1 };
            };
            const levels = [[]];
            for (const chart of this.charts) {
                if (!chart.at.begin.length) continue;
                const pieces = [];
                for (const piece of levels[levels.length - 1]) {
                    if (piece.begin < chart.begin) pieces.push(whole(piece.chart, piece.begin, Math.min(piece.end, chart.begin)));
                    if (piece.end > chart.end) pieces.push(whole(piece.chart, Math.max(piece.begin, chart.end), piece.end));
                }
                pieces.push(whole(chart, chart.begin, chart.end));
                levels.push(pieces.sort((a, b) => a.begin - b.begin));
            }
            return levels;
        }

        /** How many charts a view of these times is drawn from: a fine one where it is not a mere sliver. */
        level(min, max) {
            const fine = (chart) => min < chart.end && max > chart.begin && max - min < 6 * (chart.end - chart.begin);
            for (let level = this.pieces.length - 1; level > 1; level--) if (fine(this.charts[level - 1])) return level;
            return this.pieces.length > 1 ? 1 : 0;
        }

        /** Blocks of all charts, each once. */
        _blocks() {
            const rows = [], seen = new Set();
            for (const { blocks } of this.charts)
                for (let i = 0; i < blocks.bytes.length; i++) {
                    const key = `${blocks.address[i]} ${blocks.begin[i]}`;
                    if (seen.has(key)) continue;
                    seen.add(key);
                    rows.push({
                        address: blocks.address[i], bytes: blocks.bytes[i], begin: blocks.begin[i], end: blocks.end[i],
                        contributor: blocks.contributor[i], step: blocks.step[i], endStep: blocks.endStep[i],
                    });
                }
            return rows.sort((a, b) => a.begin - b.begin || b.bytes - a.bytes);
        }

        /** Place of the step at a time in this.steps; -1 outside of steps. */
        stepAt(time) {
            const place = before(this.steps.begin, time);
            return place >= 0 && time < this.steps.begin[place] + this.steps.length[place] ? place : -1;
        }

        /** The step as the report counts it; null outside of steps. */
        stepIndex(time) {
            const place = this.stepAt(time);
            return place < 0 ? null : this.steps.index[place];
        }

        /**
         * Series that sum to the live bytes of every interval.
         *
         * Returns {x, ends, high, low, reserved, groups: [{id, label, detail, colour, values, leaking, leak}], ...}, from the
         * bottom up; the last group is the rest, with id REST. leaking: of its values, what is a leak's. keep(contributor): others are part of the rest.
         */
        stack(grouping, level, keep) {
            const pieces = this.pieces[level];
            const ranked = this._ranked(grouping, keep);
            const place = new Map(ranked.map((group, i) => [group.id, i]));
            const length = pieces.reduce((sum, piece) => sum + piece.to - piece.from, 0);
            const columns = ranked.map(() => new Float64Array(length)), leaking = ranked.map(() => new Float64Array(length));
            const leaks = (contributor) => this.model.raw.contributors.leak[contributor] >= 0 && keep(contributor);
            const x = new Float64Array(length), ends = new Float64Array(length), rest = new Float64Array(length);
            const high = new Float64Array(length), low = new Float64Array(length), reserved = new Float64Array(length);
            const highTime = new Float64Array(length), phases = this.model.phases.map(() => new Float64Array(length));
            let offset = 0;
            for (const piece of pieces) {
                const { chart, from, to } = piece, at = chart.at;
                for (let i = from; i < to; i++) {
                    const j = offset + i - from;
                    x[j] = Math.max(at.begin[i], piece.begin);
                    ends[j] = i + 1 < to ? at.begin[i + 1] : piece.end;
                    high[j] = at.high[i];
                    low[j] = at.low[i];
                    reserved[j] = at.reserved[i];
                    highTime[j] = at.highTime[i];
                    phases.forEach((column, phase) => (column[j] = at.phases[phase][i]));
                }
                const series = this._series(chart, grouping, place, ranked.length, keep);
                series.forEach((values, k) => columns[k].set(values.subarray(from, to), offset));
                const kept = this._series(chart, grouping, place, ranked.length, leaks);
                kept.forEach((values, k) => leaking[k].set(values.subarray(from, to), offset));
                offset += to - from;
            }
            for (let j = 0; j < length; j++) {
                let left = high[j];
                for (const column of columns) left -= column[j];
                rest[j] = left;
            }
            const groups = ranked.map((group, i) => ({ ...group, values: columns[i], leaking: leaking[i] }));
            groups.push({ id: REST, label: "everything else", detail: "", colour: REST, leak: -1, values: rest });
            return { x, ends, high, low, reserved, highTime, phases, groups };
        }

        /** The groups that are drawn apart, what stays longest at the bottom. */
        _ranked(grouping, keep) {
            const table = this.model.raw.contributors[grouping], found = new Map();
            for (const chart of this.charts) {
                const candidates = this._candidates(chart, table, keep);
                this._series(chart, grouping, candidates, candidates.size, keep).forEach((values, i) => {
                    let most = 0, sum = 0;
                    for (const value of values) {
                        sum += value;
                        if (value > most) most = value;
                    }
                    const id = [...candidates.keys()][i], known = found.get(id);
                    if (!known) found.set(id, { id, most, steady: most ? sum / most / values.length : 0 });
                    else if (most > known.most) known.most = most;
                });
            }
            const chosen = [...found.values()].filter((group) => group.most > 0).sort((a, b) => b.most - a.most || a.id - b.id);
            const labels = this.model.raw.groups[grouping];
            return chosen.slice(0, SERIES).sort((a, b) => b.steady - a.steady || a.id - b.id).map(({ id, most }) => ({
                id, most, label: labels[id][0], detail: labels[id][1],
                colour: this.model.colourOf(grouping, id), leak: this.model.leakOf(grouping, id),
            }));
        }

        /** Groups that can be among the largest: by the sum of the most that each of their contributors ever had. */
        _candidates(chart, table, keep) {
            const bounds = new Map(), { high, end } = chart.rows;
            eachContributor(chart, (contributor, first, behind) => {
                if (!keep(contributor)) return;
                let most = 0;
                for (let row = first; row < behind; row++) most = Math.max(most, high[row], end[row]);
                bounds.set(table[contributor], (bounds.get(table[contributor]) ?? 0) + most);
            });
            const largest = [...bounds].sort((a, b) => b[1] - a[1]).slice(0, CANDIDATES);
            return new Map(largest.map(([id], i) => [id, i]));
        }

        /** Live bytes at each interval's high, by group. */
        _series(chart, grouping, place, count, keep) {
            const table = this.model.raw.contributors[grouping], length = chart.at.begin.length;
            const columns = Array.from({ length: count }, () => new Float64Array(length + 1));
            const moments = Array.from({ length: count }, () => new Float64Array(length));
            const { interval, high, end } = chart.rows;
            eachContributor(chart, (contributor, first, behind) => {
                const group = place.get(table[contributor]);
                if (group === undefined || !keep(contributor)) return;
                const held = columns[group], moment = moments[group];
                for (let row = first; row < behind; row++) {
                    moment[interval[row]] += high[row];
                    const next = row + 1 < behind ? interval[row + 1] : length;
                    held[interval[row] + 1] += end[row];
                    held[next] -= end[row];
                }
            });
            return columns.map((held, k) => {
                const moment = moments[k];
                let level = 0;
                for (let i = 0; i < length; i++) {
                    level += held[i];
                    moment[i] += level;
                }
                return moment;
            });
        }

        /** The chart and its interval that show a time most finely. */
        at(time) {
            const chart = [...this.charts].reverse().find((one) => one.begin <= time && time < one.end) ?? this.overview;
            const interval = chart ? Math.max(0, before(chart.at.begin, time)) : -1;
            return { chart, interval };
        }

        /** What is alive when an interval is highest, by contributor; its rows and `rest` sum to `total`. */
        moment(time) {
            const { chart, interval } = this.at(time);
            if (!chart || !chart.at.begin.length) return null;
            const { rows } = chart, list = [];
            let left = chart.at.high[interval], born = chart.at.allocated[interval], died = chart.at.freed[interval];
            eachContributor(chart, (contributor, first, behind) => {
                const row = rowAt(rows.interval, first, behind, interval);
                if (row < first) return;
                const here = rows.interval[row] === interval;
                const one = {
                    contributor, bytes: here ? rows.high[row] : rows.end[row],
                    born: here ? rows.allocated[row] : 0, died: here ? rows.freed[row] : 0,
                };
                left -= one.bytes;
                born -= one.born;
                died -= one.died;
                if (one.bytes || one.born || one.died) list.push(one);
            });
            return {
                time: chart.at.highTime[interval], begin: chart.at.begin[interval],
                end: chart.at.begin[interval + 1] ?? chart.end, hidden: chart.hidden, total: chart.at.high[interval],
                born: chart.at.allocated[interval], died: chart.at.freed[interval], list, rest: { bytes: left, born, died },
            };
        }

        /** What intervals between two times allocated and freed, by contributor, and what of it all is alive behind. */
        range(begin, end) {
            const inside = [...this.charts].reverse().find((one) => one.begin <= begin && end <= one.end) ?? this.overview;
            if (!inside || !inside.at.begin.length) return null;
            const { at, rows } = inside, from = Math.max(0, before(at.begin, begin));
            const to = Math.max(from, before(at.begin, end)), list = [];
            let born = 0, died = 0;
            for (let i = from; i <= to; i++) {
                born += at.allocated[i];
                died += at.freed[i];
            }
            const rest = { born, died, bytes: inside.hidden ? null : 0 }; // null: not known
            eachContributor(inside, (contributor, first, behind) => {
                const last = rowAt(rows.interval, first, behind, to);
                if (last < first) return;
                const one = { contributor, bytes: rows.end[last], born: 0, died: 0 };
                for (let row = last; row >= first && rows.interval[row] >= from; row--) {
                    one.born += rows.allocated[row];
                    one.died += rows.freed[row];
                }
                rest.born -= one.born;
                rest.died -= one.died;
                if (one.bytes || one.born || one.died) list.push(one);
            });
            return { begin: at.begin[from], end: at.begin[to + 1] ?? inside.end, hidden: inside.hidden, born, died, list, rest };
        }

        /** The most live bytes between two times, with what else may be drawn in that view. */
        highest(stack, min, max) {
            let most = 0, reserved = -1;
            for (let i = Math.max(0, before(stack.x, min)); i < stack.x.length && stack.x[i] <= max; i++) {
                if (stack.high[i] > most) most = stack.high[i];
                if (stack.reserved[i] > reserved) reserved = stack.reserved[i];
            }
            return { most, reserved };
        }
    }

    class Model {
        /** like: another recording's model, whose colours its groups have where they have the same names. */
        constructor(raw, like) {
            this.raw = raw;
            this.duration = Math.max(1, raw.duration);
            this.phases = raw.phases;
            this._slots = {};
            this._leaks = {};
            this.devices = raw.devices.map((device) => new Device(this, device));
            this._giveColours();
            if (like) this._takeColours(like);
        }

        /** A slot for each line that is alive at a peak, the largest first; groups of another kind follow their largest line. */
        _giveColours() {
            const raw = this.raw, biggest = new Map();
            for (const device of this.devices)
                for (const { contributor, bytes } of device.moment(device.peak.time)?.list ?? [])
                    biggest.set(contributor, Math.max(bytes, biggest.get(contributor) ?? 0));
            for (const grouping of Object.keys(raw.groups)) {
                const table = raw.contributors[grouping], slots = (this._slots[grouping] = new Map()), taken = new Set();
                const sums = new Map(), most = new Map();
                for (const [contributor, bytes] of [...biggest].sort((a, b) => b[1] - a[1] || a[0] - b[0])) {
                    const id = table[contributor];
                    sums.set(id, (sums.get(id) ?? 0) + bytes);
                    if (!most.has(id)) most.set(id, raw.contributors.line[contributor]);
                }
                for (const [id] of [...sums].sort((a, b) => b[1] - a[1] || a[0] - b[0])) {
                    let slot = grouping === "line" ? slots.size : this._slots.line.get(most.get(id));
                    if (taken.has(slot)) for (slot = 0; taken.has(slot); slot++);
                    taken.add(slot);
                    slots.set(id, slot);
                }
                const leaks = (this._leaks[grouping] = new Map());
                raw.contributors.leak.forEach((leak, contributor) => {
                    if (leak >= 0 && !leaks.has(table[contributor])) leaks.set(table[contributor], leak);
                });
            }
        }

        _takeColours(like) {
            for (const [grouping, slots] of Object.entries(this._slots)) {
                const texts = this.raw.groups[grouping], theirs = new Map(like.raw.groups[grouping].map((text, id) => [text[0], id]));
                const known = (id) => theirs.get(texts[id][0]);
                for (const id of slots.keys()) if (known(id) !== undefined) slots.set(id, like.colourOf(grouping, known(id)));
                const taken = new Set([...like._slots[grouping].values()]);
                for (const id of slots.keys()) {
                    if (known(id) !== undefined) continue;
                    let slot = 0;
                    while (taken.has(slot)) slot++;
                    taken.add(slot);
                    slots.set(id, slot);
                }
            }
        }

        /** The number of a group's colour: the same wherever it is drawn. */
        colourOf(grouping, id) {
            if (grouping === "phase" && id >= 0) return this.raw.groups.phase[id][0];
            const slots = this._slots[grouping];
            if (!slots.has(id)) slots.set(id, [...slots.values()].reduce((most, slot) => Math.max(most, slot), -1) + 1);
            return slots.get(id);
        }

        /** The changes that are written at a line. */
        advised(grouping, id) {
            return grouping === "line" ? (this.raw.advice ?? []).filter((one) => one.line === id) : [];
        }

        /** The verdict that a group has blocks of; -1: of none. */
        leakOf(grouping, id) {
            return this._leaks[grouping].get(id) ?? -1;
        }

        /** The verdict that an allocation was judged in: made in its steps, and alive behind the last of them. */
        leakOfBlock(block) {
            const leak = this.raw.leaks[this.raw.contributors.leak[block.contributor]];
            const isIn = leak && block.step >= leak.firstStep && block.step <= leak.lastStep;
            return isIn && (block.end < 0 || block.endStep < 0 || block.endStep > leak.lastStep) ? leak : null;
        }

        /** A stack's frames, innermost first. */
        frames(stack) {
            if (stack < 0) return [];
            const { frames, files, stacks } = this.raw;
            return stacks[stack].map((i) => ({
                place: frames.file[i] >= 0 && files[frames.file[i]] ? `${files[frames.file[i]]}:${frames.line[i]}` : "",
                function: frames.function[i], source: frames.source[i], module: frames.module[i], library: frames.library[i] === 1,
            }));
        }

        /** For each contributor, whether its stack, its module, its category or its operator has the text. */
        matching(text) {
            const { frames, files, stacks, contributors, groups } = this.raw, wanted = text.toLowerCase();
            const has = (part) => part.toLowerCase().includes(wanted);
            const file = files.map(has);
            const frame = frames.line.map((line, i) => file[frames.file[i]] || has(`${files[frames.file[i]]}:${line}`) ||
                has(frames.function[i]) || has(frames.source[i]) || has(frames.module[i]));
            const stack = stacks.map((row) => row.some((i) => frame[i]));
            const named = (grouping) => groups[grouping].map(([label]) => has(label));
            const line = named("line"), module = named("module"), phase = named("phase"), category = named("category");
            return contributors.stack.map((one, i) => (one >= 0 && stack[one]) || has(contributors.operator[i]) ||
                line[contributors.line[i]] || module[contributors.module[i]] || phase[contributors.phase[i]] ||
                category[contributors.category[i]]);
        }

        /** Rows of a moment's or a range's table summed by group, the largest first, behind lines what has none. */
        grouped(list, grouping) {
            const table = this.raw.contributors[grouping], labels = this.raw.groups[grouping], rows = new Map();
            const places = grouping === "line" || grouping === "function", stacks = this.raw.contributors.stack;
            for (const one of list) {
                const id = table[one.contributor];
                let row = rows.get(id);
                if (!row) rows.set(id, (row = { id, label: labels[id][0], detail: labels[id][1], bytes: 0, born: 0, died: 0, parts: [], nowhere: places && stacks[one.contributor] < 0 }));
                row.bytes += one.bytes;
                row.born += one.born;
                row.died += one.died;
                row.parts.push(one);
            }
            for (const row of rows.values()) row.parts.sort((a, b) => b.bytes - a.bytes || b.born - a.born);
            return [...rows.values()].sort((a, b) => a.nowhere - b.nowhere || b.bytes - a.bytes || b.born - a.born || a.id - b.id);
        }
    }

    return { Model, REST, before };
})();
