"""A strict reader of the Prometheus text format: what it does not understand is an error, not skipped."""

import re

_SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (NaN|[+-]Inf|[-+0-9.eE]+)$')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def _labels(text):
    labels, at = {}, 0
    while at < len(text):
        m = _LABEL.match(text, at)
        assert m, "bad labels: {%s}" % text
        assert m.group(1) not in labels, "label twice: {%s}" % text
        labels[m.group(1)] = re.sub(r'\\(.)', lambda e: "\n" if e.group(1) == "n" else e.group(1), m.group(2))
        at = m.end()
    return labels


class Metrics:
    def __init__(self, text):
        self.text = text
        self.types, self.helps, self.samples = {}, {}, {}
        assert text.endswith("\n"), "the last line has no line end"
        family, done = None, set()
        for line in text[:-1].split("\n"):
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                assert name not in self.helps, "HELP twice: " + name
                self.helps[name] = line.split(" ", 3)[3]
            elif line.startswith("# TYPE "):
                name, kind = line.split(" ")[2:]
                assert name in self.helps and name not in self.types, line
                assert kind in ("counter", "gauge", "histogram"), line
                self.types[name] = kind
            else:
                m = _SAMPLE.match(line)
                assert m, "not a sample: %r" % line
                base = self._family(m.group(1))
                assert base, "sample without TYPE: %r" % line
                if base != family:
                    assert base not in done, "family in two places: " + base
                    done.add(base)
                    family = base
                key = (m.group(1), frozenset(_labels(m.group(2) or "").items()))
                assert key not in self.samples, "series twice: %r" % line
                self.samples[key] = float(m.group(3))
        self._check_histograms()

    def _family(self, name):
        if name in self.types:
            return name
        m = re.match(r"(.*)_(bucket|sum|count)$", name)
        return m.group(1) if m and self.types.get(m.group(1)) == "histogram" else None

    def _check_histograms(self):
        buckets = {}
        for (name, labels), value in self.samples.items():
            if name.endswith("_bucket") and self._family(name) == name[:-7]:
                rest = dict(labels)
                le = float(rest.pop("le").replace("+Inf", "inf"))
                buckets.setdefault((name[:-7], frozenset(rest.items())), []).append((le, value))
        for (name, labels), values in buckets.items():
            counts = [v for _, v in sorted(values)]
            assert counts == sorted(counts), "buckets of %s go down" % name
            assert max(values)[0] == float("inf"), "no +Inf bucket: " + name
            assert counts[-1] == self.samples[(name + "_count", labels)], "+Inf is not the count: " + name
            assert (name + "_sum", labels) in self.samples

    def get(self, name, default=None, **labels):
        """The value of exactly this series."""
        return self.samples.get((name, frozenset(labels.items())), default)

    def total(self, name, **labels):
        """The sum of the series that have (at least) these labels."""
        want = set(labels.items())
        return sum(v for (n, have), v in self.samples.items() if n == name and want <= have)

    def series(self, name):
        return [(dict(have), v) for (n, have), v in self.samples.items() if n == name]
