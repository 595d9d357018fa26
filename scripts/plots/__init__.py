"""Pictures of the experiments: reports describe them, `draw` draws them.

    describe      what a picture shows, as JSON that is committed beside it: bars, lines, curves, cells
    draw          the description as SVG or PDF, by matplotlib
    colours       one colour, marker and hatching for each way that an experiment compares

A report writes only the descriptions, with the standard library; scripts/plots.py draws them, so that they can be drawn
again, in another size or for print, without measuring again.
"""
