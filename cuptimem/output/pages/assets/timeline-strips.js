/* What lies below the picture of live bytes: numbers of steps, phases, and the whole recording in small. */
"use strict";

const timelineStrips = (() => {
    const { element } = cuptimem;
    const ink = timelineInk;
    const LEFT = 78; // pixels of the axis of bytes, in all pictures

    class Strips {
        constructor(app, chart, parent) {
            this.app = app;
            this.chart = chart;
            this.strip = element("canvas", { class: "strip", "aria-hidden": "true" });
            this.map = element("canvas", { class: "map", "aria-hidden": "true" });
            const mapNote = "The whole recording: drag to move what is shown above";
            parent.append(this.strip, app.phaseLegend, element("div", { class: "map-box", title: mapNote }, this.map));
            this._watchMap();
        }

        draw() {
            this._drawStrip();
            this._drawMap();
        }

        // -- steps and phases ----------------------------------------------------------------------------------------

        _drawStrip() {
            const { app, strip } = this, { plot } = this.chart, { device, view, stack, inks } = app, { steps } = device;
            const width = this.chart.width(), left = LEFT, across = plot.over.clientWidth;
            const phases = stack.phases.some((column) => column.some((value) => value > 0));
            const height = steps.index.length ? (phases ? 36 : 20) : phases ? 16 : 0;
            const pen = ink.fit(strip, width, height);
            strip.hidden = height === 0;
            if (!height) return;
            const px = (time) => left + ((time - view.min) / (view.max - view.min)) * across;
            pen.font = "11px system-ui, sans-serif";
            pen.textBaseline = "middle";
            pen.save();
            pen.fillStyle = inks.faint;
            pen.textAlign = "right";
            if (steps.index.length) pen.fillText("step", left - 8, 9);
            if (phases) pen.fillText("phase", left - 8, height - 8);
            pen.beginPath();
            pen.rect(left, 0, across, height);
            pen.clip();
            if (steps.index.length) this._drawSteps(pen, px, left, across);
            if (phases) this._drawPhases(pen, px, height - 14, across);
            pen.restore();
        }

        _drawSteps(pen, px, left, across) {
            const { device, view, inks } = this.app, { steps } = device;
            const first = Math.max(0, timelineModel.before(steps.begin, view.min));
            const last = timelineModel.before(steps.begin, view.max), shown = last - first + 1;
            if (shown < 1) return;
            let every = 1;
            for (let i = 0; (shown / every) * 46 > across; i++) every *= i % 3 === 1 ? 2.5 : 2; // 1, 2, 5, 10, 20, ...
            const walls = shown * 5 < across;
            const ends = (i) => [px(steps.begin[i]), px(steps.begin[i] + steps.length[i])];
            for (let i = first; walls && i <= last; i++) {
                const [begin, end] = ends(i);
                pen.fillStyle = steps.index[i] % 2 ? inks.grid : inks.stepStrong;
                pen.fillRect(begin, 1, Math.max(0.5, end - begin - (end - begin > 3 ? 1 : 0)), 16);
            }
            pen.fillStyle = inks.ink;
            pen.textAlign = "left";
            let free = -Infinity;
            for (let i = first; i <= last; i++) {
                if (steps.index[i] % every) continue;
                const [begin, end] = ends(i), text = String(steps.index[i]), wide = pen.measureText(text).width;
                const middle = (Math.max(begin, left) + Math.min(end, left + across)) / 2;
                const at = every > 1 || end - begin < wide ? begin + 2 : middle - wide / 2;
                if (at < free) continue;
                pen.fillText(text, at, 9.5);
                free = at + wide + 6;
            }
        }

        /** The phase of most allocations in each interval; where nothing was allocated, that of before, in pale. */
        _drawPhases(pen, px, top, across) {
            const { app } = this, { stack, view, model, device } = app;
            const from = Math.max(0, timelineModel.before(stack.x, view.min)), to = timelineModel.before(stack.x, view.max);
            const crowd = timelineModel.before(device.steps.begin, view.max) - timelineModel.before(device.steps.begin, view.min);
            if (crowd * 14 > across) {
                pen.fillStyle = app.inks.faint;
                pen.textAlign = "left";
                pen.fillText("zoom in to see phases", px(view.min) + 4, top + 6);
                return;
            }
            let current = -1, step = -1;
            for (let i = from; i <= to; i++) {
                let most = 0, phase = -1;
                stack.phases.forEach((column, k) => {
                    if (column[i] > most) [most, phase] = [column[i], k];
                });
                const here = device.stepAt(stack.x[i]);
                if (here !== step && phase < 0) current = -1;
                step = here;
                if (phase >= 0) current = phase;
                if (current < 0) continue;
                pen.globalAlpha = phase >= 0 ? 1 : 0.35;
                pen.fillStyle = ink.colour(model.phases[current], app.dark);
                pen.fillRect(px(stack.x[i]), top + 2, px(stack.ends[i]) - px(stack.x[i]) + 0.3, 9);
            }
            pen.globalAlpha = 1;
            const seen = model.phases.filter((_, k) => stack.phases[k].some((value) => value > 0));
            app.showPhases(seen.map((name) => [name, ink.colour(name, app.dark)]));
        }

        // -- the whole recording in small ----------------------------------------------------------------------------

        _drawMap() {
            const { app, map } = this, { plot } = this.chart, at = app.device.overview?.at, width = this.chart.width(), across = plot.over.clientWidth;
            const height = 34, pen = ink.fit(map, width, height);
            if (!at || !at.begin.length) return;
            const { duration } = app.model, px = (time) => LEFT + (time / duration) * across;
            const most = Math.max(1, ...at.high), py = (bytes) => height - 2 - (bytes / most) * (height - 4);
            pen.fillStyle = app.inks.grid;
            pen.beginPath();
            pen.moveTo(px(at.begin[0]), height - 2);
            for (let i = 0; i < at.begin.length; i++) {
                pen.lineTo(px(at.begin[i]), py(at.high[i]));
                pen.lineTo(px(at.begin[i + 1] ?? duration), py(at.high[i]));
            }
            pen.lineTo(px(duration), height - 2);
            pen.fill();
            const [begin, end] = [px(app.view.min), px(app.view.max)];
            pen.fillStyle = app.inks.accent;
            pen.globalAlpha = 0.16;
            pen.fillRect(begin, 0, Math.max(2, end - begin), height);
            pen.globalAlpha = 1;
            pen.strokeStyle = app.inks.accent;
            pen.strokeRect(begin + 0.5, 0.5, Math.max(2, end - begin - 1), height - 1);
            pen.fillStyle = app.inks.faint;
            pen.font = "11px system-ui, sans-serif";
            pen.textAlign = "right";
            pen.fillText("all", LEFT - 8, height / 2 + 4);
        }

        _watchMap() {
            const { app, map } = this;
            const move = (event) => {
                const at = (event.clientX - map.getBoundingClientRect().left - LEFT) / this.chart.plot.over.clientWidth;
                const half = (app.view.max - app.view.min) / 2, middle = at * app.model.duration;
                app.look(middle - half, middle + half);
            };
            map.addEventListener("pointerdown", (event) => {
                map.setPointerCapture(event.pointerId);
                move(event);
            });
            map.addEventListener("pointermove", (event) => (event.buttons & 1 ? move(event) : null));
        }
    }

    return { Strips, LEFT };
})();
