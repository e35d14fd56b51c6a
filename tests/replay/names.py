"""What differs from run to run, and its names in a recording: ‹KEY›, ‹HOST›, ‹U1› (a UUID that the server made), ‹B2› (a boundary of its), ‹T› (a
time), ‹V› (our version). The marks are no Latin-1, which recorded bytes are written in, so they cannot stand in one."""
import re

MADE = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|caisson-[0-9a-f]{32}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NAME = re.compile("‹([A-Z]+[0-9]*)›")
SHAPE = {"U": "[0-9a-f-]{36}", "B": "caisson-[0-9a-f]{32}", "T": TIME.pattern, "V": '[^"]*'}


def plain(b, values, learn=False):
    """Bytes as text with names in place of values: {name: value}, to which new ones are added when learn is set."""
    text = b.decode("latin-1")
    if learn:
        for made in MADE.findall(text):
            if made not in values.values():
                values[("B" if made.startswith("caisson-") else "U") + str(len(values))] = made
    for name, value in values.items():
        text = text.replace(value, "‹%s›" % name)
    return TIME.sub("‹T›", re.sub('"version":"[^"]*","oidc"', '"version":"‹V›","oidc"', text))
