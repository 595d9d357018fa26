"""What `scripts/bench_people.py` measures: the package of Python, files in SQL, the console and metrics, each against a
target of its own.

    run             one run: its options, its records, the rounds that interleave the ways
    pythons         the Python that has the wheel and its peers; processes of it
    process         such a process: a statement run for the first time and again
    package         experiments of the package: wheel, import, rows, frames, files
    serving         experiments of the server: paint, console, metrics
    visitors        clients over HTTP: one that listens to the console's live view, one that reads metrics
    browser         a process with the console's page in Chromium
    report          Markdown tables of the measurements, and of what they say of the targets
    self_test       checks of the pure parts, and of what a run at a tiny scale has left
"""
