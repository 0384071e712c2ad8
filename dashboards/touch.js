// A tap is a click. Plotly takes a touch for the start of a drag and picks the point that was hovered
// before; kept from it, the browser turns the tap into the mouse events of a click at that place,
// and a swipe scrolls the page.
if (!window.wbTapIsClick) {
  window.wbTapIsClick = true;
  window.addEventListener("touchstart", (event) => {
    if (event.target.closest?.(".js-plotly-plot .draglayer")) event.stopPropagation();
  }, { capture: true, passive: true });
}
