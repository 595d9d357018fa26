"""One colour, marker, line and hatching for each way, the same in all pictures.

The colours are those of Okabe and Ito, which people with any colour blindness tell apart; the two orders of markers and
hatchings do so without colour. A name that is not listed takes the next colours that its picture does not use.
"""

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#000000", "#8C8C8C"

# What runs on the host is blue, what runs on devices is orange, what the planner chooses is green, peers are grey.
FIXED = {
    "host": BLUE, "S1 host": BLUE, "by way of the host": BLUE, "host alone": SKY, "works": BLUE, "one by one": BLUE,
    "device": ORANGE, "devices": ORANGE, "S3 device": ORANGE, "ndp": ORANGE, "device to device": ORANGE,
    "fragments": ORANGE, "rows": ORANGE, "batch": ORANGE,
    "auto": GREEN, "divided by key": GREEN, "history always": GREEN,
    "equal": SKY, "free-disk": GREY, "blk": VERMILION, "pages": VERMILION, "baseline": BLACK, "native": YELLOW,
    "paper": PURPLE, "processor": PURPLE,
    "PostgreSQL": GREY, "PostgreSQL alone": BLACK, "PostgreSQL, LOCK TABLE": BLACK, "alone": SKY,
    "planning": GREY, "waits": YELLOW, "serving": SKY, "stalled": VERMILION,
    "history off": GREY, "history on": ORANGE, "stealing off": GREY, "stealing on": ORANGE,
}
ORDER = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY, BLACK, YELLOW)
MARKERS = "osD^vPX<>"
# No dots: each would be a curve of its own in the file.
HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "||||", "++++", "//", "--")
# Slower is orange and faster is blue, as no colour blindness mixes them up; the middle is nearly white.
CELLS = {
    "better3": ("#0B559F", "white"), "better2": ("#5BA3CF", "black"), "better1": ("#C6DBEF", "black"),
    "par": ("#F7F7F7", "black"),
    "worse1": ("#FDD0A2", "black"), "worse2": ("#F28E2B", "black"), "worse3": ("#A63603", "white"),
    "none": ("#D9D9D9", "black"), "near": ("#F7F7F7", "black"), "missed": ("#F28E2B", "black"),
}


def of(names):
    """{name: colour}, without one colour twice while there are others."""
    chosen = {}
    for name in names:
        if FIXED.get(name) not in (None, *chosen.values()):
            chosen[name] = FIXED[name]
    for number, name in enumerate(name for name in names if name not in chosen):
        free = [colour for colour in ORDER if colour not in chosen.values()]
        chosen[name] = free[0] if free else ORDER[number % len(ORDER)]
    return chosen
