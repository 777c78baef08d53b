"""Clients that hold conversations through a router while something happens to it, and what became of their requests."""

import random
import threading
import time

from client import Client


class Load:
    """n clients, each with sessions of a few turns; every request says when it was sent ("sent", on the monotonic clock)."""

    def __init__(self, port, n=8, model="m", turns=4, seed=1, pause=0.0, until_refused=False):
        """until_refused: each client goes on until nobody listens any more, instead of taking that for an error."""
        self.port, self.model, self.turns, self.pause = port, model, turns, pause
        self.refusals = (ConnectionRefusedError,) if until_refused else ()
        self.running, self.lock = True, threading.Lock()
        self.answers, self.errors = [], []  # (sent, seconds, session, status), what went wrong otherwise
        self.threads = [threading.Thread(target=self._run, args=(random.Random(seed * 1000 + i), i), daemon=True) for i in range(n)]
        for t in self.threads:
            t.start()

    def _run(self, rng, number):
        session, client = 0, None
        while self.running:
            session += 1
            for _ in range(rng.randint(1, self.turns)):
                if not self.running:
                    break
                try:
                    client = client or Client(self.port)
                except self.refusals:
                    return
                client = self._turn(client, "s-%d-%d" % (number, session))
                if self.pause:
                    time.sleep(rng.random() * self.pause)
        if client:
            client.close()

    def _turn(self, client, session):
        sent = time.monotonic()
        try:
            r = client.chat(model=self.model, session=session, sent=sent).answer()
        except Exception as e:  # a lost request, whatever the reason
            with self.lock:
                self.errors.append((sent, session, repr(e)))
            client.close()
            return None
        with self.lock:
            self.answers.append((sent, time.monotonic() - sent, session, r.status))
        if (r.header("Connection") or "").lower() == "close":
            client.close()
            return None
        return client

    def wait(self, n, timeout=30):
        """Until n more answers came."""
        end, goal = time.monotonic() + timeout, len(self.answers) + n
        while len(self.answers) < goal:
            assert time.monotonic() < end, "no answers: %d of %d; errors %s" % (len(self.answers), goal, self.errors[:3])
            time.sleep(0.005)

    def stop(self):
        self.running = False
        return self.join()

    def join(self):
        for t in self.threads:
            t.join(30)
            assert not t.is_alive(), "a client hangs"
        return self

    def tell(self, what):
        """One line of figures, for who runs the test with -s."""
        print("\n%s: %d requests, %d lost, the longest took %.0f ms" %
              (what, len(self.answers) + len(self.errors), len(self.lost), 1000 * max(a[1] for a in self.answers)))

    @property
    def lost(self):
        """Requests without a good answer."""
        return self.errors + [a for a in self.answers if a[3] != 200]
