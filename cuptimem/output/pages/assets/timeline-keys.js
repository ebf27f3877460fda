/* The keyboard of the timeline. */
"use strict";

/** Keys, where nothing else has them. */
function timelineKeys(app, target) {
    const actions = {
        ArrowLeft: (event) => (event.shiftKey ? shift(-0.2) : app.move(-1)), ArrowRight: (event) => (event.shiftKey ? shift(0.2) : app.move(1)),
        "+": () => app.zoom(0.6), "=": () => app.zoom(0.6), "-": () => app.zoom(1 / 0.6), "0": () => app.reset(), "[": () => app.moveStep(-1), "]": () => app.moveStep(1),
        p: () => app.selectPeak(true), "/": () => app.search.focus(), "?": () => app.toggleHelp(), d: () => app.toggleTheme(),
        l: () => app.setGrouping(app.by.options[(app.by.selectedIndex + 1) % app.by.options.length].value), Escape: () => app.clear(),
    };
    const shift = (part) => {
        const { min, max } = app.view;
        app.look(min + (max - min) * part, max + (max - min) * part);
    };
    target.addEventListener("keydown", (event) => {
        const { target: focus } = event, writing = focus.matches?.("input[type=search], input[type=text], textarea, select");
        const ours = focus === document.body || app.root.contains(focus);
        if (!ours || event.ctrlKey || event.altKey || event.metaKey || !(event.key in actions)) return;
        if (writing && event.key !== "Escape") return;
        if (event.key === "Escape" && writing) focus.blur();
        actions[event.key](event);
        event.preventDefault();
    });
}
