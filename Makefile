# kthena-router: build, tests, lint, installation. "make help" lists the targets.
#
# Objects lie under $(BUILD)/obj/<path of the source>.o. What the libraries need is found once by pkg-config and kept in
# $(BUILD)/libs.mk; that file and every object wait for the packages (deps), so any target works on a fresh machine.

VERSION := 0.1.0

ifeq ($(origin CC),default)
CC := gcc
endif
SAN     ?=
PYTHON  ?= /usr/bin/python3
PREFIX  ?= /usr/local
DESTDIR ?=
V       ?=
S       ?= 60

# The plain call builds into build/; clang and sanitizers get directories of their own below it.
is_clang := $(findstring clang,$(notdir $(CC)))
variant  := $(is_clang)$(if $(SAN),$(if $(is_clang),-)san)
BUILD    ?= build$(if $(variant),/$(variant))

Q := $(if $(V),,@)
comma := ,
say = $(if $(V),,@echo '  $(1)' '$(patsubst $(CURDIR)/%,%,$@)')

# ---- flags ----

CFLAGS ?= -O2 -g
warn   := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror
# -fno-plt: with -z now all addresses are known at the start anyway, and calls go without a detour.
harden := -fPIE -fno-plt -fstack-protector-strong
ifeq ($(SAN),)
harden += $(if $(filter-out -O0,$(filter -O%,$(CFLAGS))),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
else
san    := -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
endif
ifeq ($(shell uname -m),x86_64)
harden += -fstack-clash-protection -fcf-protection
# gcc clears half a KiB with one repeated instruction, which takes 12 ns; libc's way takes 5.
tune   := $(if $(is_clang),,-mmemset-strategy=libcall:-1:noalign)
endif

# The router is optimized as a whole and in one piece, which saves 6 % of its instructions; tests link its objects one by
# one. clang would need another linker for it, and sanitized, covered and mutated builds want to be done soon.
lto := $(if $(SAN)$(is_clang),,$(if $(filter -O2 -O3,$(CFLAGS)),-flto -ffat-lto-objects))
how_lto = -fno-lto

base_flags = -std=c11 -D_GNU_SOURCE -DROUTER_VERSION='"$(VERSION)"' $(CFLAGS) $(harden) $(tune) $(san) $(CPPFLAGS)
link_flags = $(CFLAGS) $(san) -pie -Wl,-z,relro,-z,now $(how_lto) $(LDFLAGS)

# ---- sources ----

src_of  = $(sort $(wildcard $(1)))
objs_of = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

base_objs   := $(call objs_of,$(call src_of,src/base/*.c))
core_objs   := $(call objs_of,$(call src_of,src/core/*.c))
net_objs    := $(call objs_of,$(call src_of,src/net/*.c))
router_objs := $(base_objs) $(core_objs) $(net_objs) $(call objs_of,$(call src_of,src/app/*.c))
sim_objs    := $(call objs_of,$(call src_of,tests/sim/*.c))
unit_bins   := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(call src_of,tests/unit/test_*.c))
fuzz_bins   := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(call src_of,tests/fuzz/fuzz_*.c))
torture_objs := $(call objs_of,$(call src_of,tests/torture/*.c)) $(BUILD)/obj/tests/sim/loop.o $(BUILD)/obj/tests/sim/util.o
bench_bins  := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(call src_of,tests/bench/*.c))
base_tests  := $(filter $(patsubst src/base/%.c,$(BUILD)/unit/test_%,$(wildcard src/base/*.c)) \
                 $(BUILD)/unit/test_util $(BUILD)/unit/test_list,$(unit_bins))
net_tests   := $(filter $(patsubst src/net/%.c,$(BUILD)/unit/test_%,$(wildcard src/net/*.c)),$(unit_bins))
c_files      = $(call src_of,include/*.h src/*/*.c src/*/*.h tests/unit/*.[ch] tests/fuzz/*.[ch] tests/sim/*.[ch] \
                 tests/bench/*.[ch] tests/torture/*.[ch] tests/torture/preload/*.c)

router := $(BUILD)/kthena-router
sim    := $(BUILD)/vllm-sim
torture := $(BUILD)/torture
torture_clock := $(BUILD)/torture-clock.so
torture_alloc := $(BUILD)/torture-alloc.so

.PHONY: all router sim unit fuzz-bins bench-bins bench bench-gates bench-fairness bench-features bench-routing bench-shares bench-kube bench-profile bench-ttft test e2e-openai e2e-vllm check torture mutants soak-streams soak-sessions valgrind lint generated generate rules chart lifecycle deploy-check image-check generate-deploy demo fuzz fuzz-run format install clean help \
        deps deps-demo deps-test FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: router sim
router: $(router)
sim: $(sim)

help:
	@echo 'make             $(router) and $(sim)'
	@echo 'make demo        two simulated pods, the router and a conversation; ONCE=1 exits afterwards'
	@echo 'make test        unit tests, fuzz corpora, end-to-end tests'
	@echo 'make e2e-openai  the official OpenAI client through the router; "make e2e-vllm": with two real vLLM engines'
	@echo 'make check       test + lint + generated files; "make generate" renews those'
	@echo 'make torture N=20000 SEED=   random faults of clients, pods and the world; what each must see is checked'
	@echo 'make soak S=1800  the same at half load for S seconds; memory and delay for each minute'
	@echo 'make deploy-check  the Helm chart for a matrix of values (helm built with Go if there is none), the alert rules'
	@echo 'make image-check  the image built and run: user, rights, read-only root, size, start (root, podman)'
	@echo 'make lifecycle SEEDS=20  pods, routes, the API and the router itself come and go under load: requests, and how many were lost'
	@echo 'make mutants     breaks one rule at a time and demands that a test notices'
	@echo 'make coverage    all tests on a build that counts lines; the share that was run, by file'
	@echo 'make differential  the same bytes through the router, HAProxy and nginx; each difference with its reason'
	@echo 'make soak-streams S=60   2,000 event streams for S seconds, each byte checked'
	@echo 'make soak-sessions N=1000000   sessions that come once, random names of models: memory and series stay flat'
	@echo 'make valgrind    end-to-end tests and a short torture under valgrind'
	@echo 'make fuzz S=60   each fuzzer for S seconds (clang)'
	@echo 'make bench       beside HAProxy and nginx, 20 minutes; QUICK=1: 2 minutes; ARGS=--help: cases, --peer, ...'
	@echo 'make bench-gates instructions and system calls per request and chunk; bench-profile: by function'
	@echo 'make bench-fairness  one greedy user beside nine modest ones; bench-features: what each option costs per request'
	@echo 'make bench-kube  a cluster of 5,000 pods and 1,000 routes: time to know it, longest turn, memory'
	@echo 'make bench-routing  instructions per request of each way of routing, 4 minutes; bench-shares: weights and moved sessions'
	@echo 'make bench-ttft  first tokens by queue order, real and simulated, 45 minutes; QUICK=1: 4; ARGS=--help'
	@echo 'make bench-bins  what the benchmarks run, also by hand: build/bench/queue_sim --help'
	@echo 'make format      clang-format on all sources'
	@echo 'make deps        install the missing Debian or Ubuntu packages (deps-test: those of the tests too)'
	@echo 'make install     DESTDIR=$(DESTDIR) PREFIX=$(PREFIX)'
	@echo 'CC=gcc|clang  SAN=address,undefined  BUILD=directory  V=1 shows the commands'

# ---- packages and libraries ----

deps:
	@deploy/install-deps.sh build $(is_clang)
deps-demo:
	@deploy/install-deps.sh demo $(is_clang)
deps-test:
	@deploy/install-deps.sh test $(is_clang)

ifneq ($(filter-out clean help deps deps-demo deps-test format,$(or $(MAKECMDGOALS),all)),)
include $(BUILD)/libs.mk
endif

# mimalloc replaces malloc in the router: glibc keeps seven pieces of a size at hand, and 64 requests that come in one
# turn want 64. Sanitizers bring an allocator of their own.
#
# libllhttp where it is packaged as a library; else Debian's C sources, compiled here with the strict parser.
$(BUILD)/libs.mk: Makefile | deps
	@mkdir -p $(@D)
	@set -eu; exec >$@.new; \
	echo "EVENT_LIBS := $$(pkg-config --libs libevent)"; \
	echo "TLS_LIBS := $$(pkg-config --libs libssl libcrypto)"; \
	echo "CURL_LIBS := $$(pkg-config --libs libcurl)"; \
	echo "CORE_LIBS := $$(pkg-config --libs libcjson inih yaml-0.1) -lm"; \
	echo "CJSON_LIBS := $$(pkg-config --libs libcjson) -lm"; \
	echo "MALLOC_LIBS := $(if $(SAN),,-Wl$(comma)--push-state$(comma)--no-as-needed -lmimalloc -Wl$(comma)--pop-state)"; \
	if pkg-config --exists libllhttp; then \
	    echo "LLHTTP_FLAGS := $$(pkg-config --cflags libllhttp)"; \
	    echo "CORE_LIBS += $$(pkg-config --libs libllhttp)"; \
	    echo "CJSON_LIBS += $$(pkg-config --libs libllhttp)"; \
	elif [ -f /usr/share/llhttp/llhttp.c ]; then \
	    echo "LLHTTP_FLAGS := -isystem /usr/share/include/llhttp -DLLHTTP_STRICT_MODE=1"; \
	    echo 'LLHTTP_OBJS := $$(patsubst %,$$(BUILD)/obj/llhttp/%.o,api http llhttp)'; \
	else \
	    echo "llhttp not found: neither libllhttp.pc nor /usr/share/llhttp (run: make deps)" >&2; exit 1; \
	fi; mv $@.new $@

# ---- compiling and linking ----

# Objects are rebuilt when the compiler or its flags change.
$(BUILD)/flags: FORCE | $(BUILD)/libs.mk
	$(file >$@.new,$(CC) $(base_flags) $(lto) $(warn) $(LLHTTP_FLAGS) $(link_flags))
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# Only "x.h" finds our headers, so that no system header meets one of them by its name.
$(BUILD)/obj/src/%.o: src/%.c $(BUILD)/flags $(BUILD)/libs.mk | deps
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(base_flags) $(lto) $(warn) -iquote include $(LLHTTP_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/tests/sim/%.o: tests/sim/%.c $(BUILD)/flags $(BUILD)/libs.mk | deps
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(base_flags) $(warn) -iquote tests/sim $(LLHTTP_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/tests/torture/%.o: tests/torture/%.c $(BUILD)/flags $(BUILD)/libs.mk | deps
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(base_flags) $(warn) -iquote tests/torture -iquote tests/sim -MMD -MP -c -o $@ $<

$(BUILD)/obj/tests/%.o: tests/%.c $(BUILD)/flags $(BUILD)/libs.mk | deps
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(base_flags) $(warn) -iquote include $(LLHTTP_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/llhttp/%.o: /usr/share/llhttp/%.c $(BUILD)/flags $(BUILD)/libs.mk | deps
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(base_flags) -w $(LLHTTP_FLAGS) -c -o $@ $<

# bench_queue measures what the router is made of.
$(router) $(BUILD)/bench/bench_queue: private how_lto = $(if $(lto),-flto -flto-partition=one $(harden) $(tune))
$(router): $(router_objs) $(LLHTTP_OBJS)
	$(call say,LINK)
	$(Q)$(CC) $(link_flags) -o $@ $^ $(MALLOC_LIBS) $(EVENT_LIBS) $(TLS_LIBS) $(CURL_LIBS) $(CORE_LIBS)

# The simulated pod shares no code with the router.
$(sim): $(sim_objs)
	$(call say,LINK)
	$(Q)$(CC) $(link_flags) -o $@ $^ $(CJSON_LIBS)

# Clients and pods that torture the router. The loop is the simulated pod's; nothing is the router's.
$(torture): $(torture_objs)
	$(call say,LINK)
	$(Q)$(CC) $(link_flags) -o $@ $^

# Loaded into the router, sanitized or not, so it is neither.
$(torture_clock) $(torture_alloc): $(BUILD)/torture-%.so: tests/torture/preload/%.c $(BUILD)/flags | deps
	$(call say,LINK)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -fPIC -shared -o $@ $< -ldl

# Tests of base see base alone, tests of core see base and core, tests of net all but app: a call upwards is a link error.
$(base_tests): $(BUILD)/unit/%: $(BUILD)/obj/tests/unit/%.o $(base_objs)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(link_flags) -o $@ $^ -lcmocka $(CJSON_LIBS)

$(net_tests): $(BUILD)/unit/%: $(BUILD)/obj/tests/unit/%.o $(base_objs) $(core_objs) $(net_objs) $(LLHTTP_OBJS)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(link_flags) -o $@ $^ -lcmocka $(EVENT_LIBS) $(TLS_LIBS) $(CURL_LIBS) $(CORE_LIBS)

$(filter-out $(base_tests) $(net_tests),$(unit_bins)): $(BUILD)/unit/%: $(BUILD)/obj/tests/unit/%.o $(base_objs) $(core_objs) $(LLHTTP_OBJS)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(link_flags) -o $@ $^ -lcmocka $(CORE_LIBS)

# With libFuzzer its main; otherwise a main that replays the corpus.
fuzz_main = $(if $(findstring fuzzer,$(SAN)),,$(BUILD)/obj/tests/fuzz/replay.o)
$(fuzz_bins): $(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(fuzz_main) $(base_objs) $(core_objs) $(LLHTTP_OBJS)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(subst fuzzer-no-link,fuzzer,$(link_flags)) -o $@ $^ $(CORE_LIBS)

$(bench_bins): $(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(base_objs) $(core_objs) $(LLHTTP_OBJS)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(link_flags) -o $@ $^ $(CORE_LIBS)

$(call objs_of,$(call src_of,tests/unit/*.c)): | deps-test

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# ---- tests ----

unit: $(unit_bins)
fuzz-bins: $(fuzz_bins)
bench-bins: $(bench_bins)

test_env = ROUTER_BIN=$(abspath $(router)) VLLM_SIM=$(abspath $(sim)) FAIL_ALLOC_LIB=$(abspath $(torture_alloc)) PYTHONDONTWRITEBYTECODE=1

test: $(unit_bins) $(fuzz_bins) $(torture) $(torture_clock) $(torture_alloc) all | deps-test
	$(Q)$(test_env) $(PYTHON) tests/run --unit $(unit_bins) --fuzz $(fuzz_bins) --torture $(torture) $(abspath $(torture_clock)) --e2e tests/e2e

# The official OpenAI client, in an environment of its own below $(BUILD): with simulated pods, and with two vLLM engines that
# serve a tiny model of random weights on the CPU (about 6 GB are installed; CHECKS="turns cancel" runs these alone).
e2e-openai: all | deps-test
	$(Q)PYTHON=$(PYTHON) tests/vllm/environment.sh $(BUILD)/venv-openai tests/vllm/openai.txt
	$(Q)$(test_env) $(BUILD)/venv-openai/bin/python tests/e2e/openai_client.py

e2e-vllm: all | deps-test
	$(Q)PYTHON=$(PYTHON) tests/vllm/environment.sh $(BUILD)/venv-vllm tests/vllm/requirements.txt --no-deps
	$(Q)$(test_env) $(BUILD)/venv-vllm/bin/python tests/vllm/run.py $(BUILD)/vllm $(CHECKS)

# The tests come last: their closing line is the last one.
# Instructions are counted, and deploy/ is looked at, with one compiler only.
check: lint generated $(if $(is_clang),,bench-gates rules chart)
	$(Q)$(MAKE) --no-print-directory test

lint: | deps-test
	$(Q)status=0; \
	$(PYTHON) -B tests/lint/layers $(BUILD)/obj $(router_objs) || status=1; \
	$(PYTHON) -B tests/lint/banned || status=1; \
	$(PYTHON) -B tests/lint/docs || status=1; \
	$(PYTHON) -B tests/lint/deploy || status=1; \
	$(PYTHON) -B tests/lint/hardening $(router) || status=1; \
	$(PYTHON) -B tests/mutants/run --texts || status=1; \
	tests/lint/format $(c_files) || status=1; \
	exit $$status
lint: $(router) $(router_objs)

# N requests with faults of all kinds; the same SEED plays the same requests again. ARGS=--help lists more.
N ?= 20000
torture: $(router) $(torture) $(torture_clock)
	$(Q)$(torture) --router $(router) --preload $(abspath $(torture_clock)) --requests $(N) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Half an hour at about half load, with faults; memory, descriptors and the delay of untouched requests for each minute.
soak: $(router) $(torture) $(torture_clock)
	$(Q)$(torture) --router $(router) --preload $(abspath $(torture_clock)) --seconds $(S) --rate 400 $(if $(SEED),--seed $(SEED)) $(ARGS)
soak: S = 1800

# The same bytes through the router, HAProxy and nginx: every difference with its reason.
differential: $(router)
	$(Q)$(bench_env) $(PYTHON) tests/differential/run.py
.PHONY: soak differential coverage

# All tests once more on a build that counts lines; core and net have to reach 90 %. ARGS=--missing shows what nothing ran.
coverage:
	$(Q)find $(BUILD)/coverage -name '*.gcda' -delete 2>/dev/null || :
	$(Q)$(MAKE) --no-print-directory test CC=gcc CFLAGS='-O0 -g --coverage -fprofile-update=atomic' BUILD=$(BUILD)/coverage
	$(Q)$(PYTHON) -B tests/coverage/report.py $(BUILD)/coverage $(ARGS)

# ---- what lies in deploy/ ----

tools = $(abspath build/tools)

# Prometheus's own checker on the alert rules: are they well-formed, do they fire when they should, and only then?
rules:
	$(Q)promtool=$$(tests/deploy/tool promtool $(tools)) || { echo 'ALERT RULES NOT CHECKED: no promtool' >&2; exit 0; }; \
	$$promtool check rules deploy/helm/kthena-router/files/alerts.yaml >/dev/null && \
	$$promtool test rules tests/deploy/alerts.test.yaml | grep -v '^$$'

chart_tests = HELM=$$helm $(test_env) $(PYTHON) -m pytest -q -p no:cacheprovider tests/deploy

# With a helm that is there; "make deploy-check" builds one.
chart: $(router) | deps-test
	$(Q)helm=$$(tests/deploy/tool helm $(tools)) || { echo 'CHART NOT RENDERED: no helm here ("make deploy-check" builds one with Go)' >&2; exit 0; }; \
	$(chart_tests)

deploy-check: $(router) rules | deps-test
	$(Q)helm=$$(tests/deploy/tool helm $(tools) build) || { echo 'CHART NOT RENDERED: neither helm nor Go on this machine' >&2; exit 1; }; \
	$(chart_tests)

# The image of deploy/Dockerfile, built on a base of debootstrap and run by podman; as root, in minutes.
image-check: all
	@deploy/install-deps.sh image $(is_clang)
	$(Q)$(test_env) $(PYTHON) tests/deploy/image.py $(abspath build/image)

generate-deploy:
	$(Q)helm=$$(tests/deploy/tool helm $(tools) build) && deploy/helm/plain $$helm >$(tools)/kubernetes.yaml && \
	mv $(tools)/kubernetes.yaml deploy/kubernetes.yaml

lifecycle: all | deps-test
	$(Q)SEEDS=$(or $(SEEDS),3) $(test_env) $(PYTHON) -m pytest -q -s -p no:cacheprovider tests/e2e/test_kube_lifecycle.py

# Breaks one rule at a time in a copy of the tree; each break has to be caught by a test. Takes minutes.
mutants: | deps-test
	$(Q)$(PYTHON) -B tests/mutants/run

# Many event streams at once, each byte checked, memory and descriptors before, during and after.
soak-streams: all $(BUILD)/bench/streams
	$(Q)$(test_env) $(PYTHON) tests/bench/streams.py $(BUILD)/bench/streams --seconds $(S)

# N sessions that come once, and 10,000 names of models: memory and series stay flat.
soak-sessions: $(router) $(BUILD)/bench/sink
	$(Q)$(test_env) $(PYTHON) tests/bench/sessions.py $(BUILD)/bench/sink --sessions $(N)
soak-sessions: N = 1000000

# What valgrind says of memory: end-to-end tests and a short torture, each process of the router looked at. A quarter of an hour.
valgrind: all $(torture) | deps-test
	$(Q)$(test_env) PYTHON=$(PYTHON) tests/valgrind/run $(abspath $(BUILD)/valgrind) $(torture)

# Both files are printed by the binary from its one table of options.
generated: $(router)
	$(Q)$(router) --print-example | diff -u config/router.ini.example - >&2 || { echo 'config/router.ini.example is out of date: run "make generate"' >&2; exit 1; }
	$(Q)$(router) --print-options-doc | diff -u config/OPTIONS.md - >&2 || { echo 'config/OPTIONS.md is out of date: run "make generate"' >&2; exit 1; }

generate: $(router)
	$(Q)$(router) --print-example >config/router.ini.example
	$(Q)$(router) --print-options-doc >config/OPTIONS.md

bench_env = BENCH_BUILD=$(abspath $(BUILD)) PYTHONDONTWRITEBYTECODE=1

bench: all bench-bins
	$(Q)$(bench_env) $(PYTHON) tests/bench/run.py $(if $(QUICK),--quick) $(ARGS)

bench-gates: $(router) $(BUILD)/bench/load $(BUILD)/bench/sink
	$(Q)$(bench_env) $(PYTHON) tests/bench/gates.py

bench-routing: $(router) $(BUILD)/bench/load $(BUILD)/bench/sink
	$(Q)$(bench_env) $(PYTHON) tests/bench/routing.py

bench-shares: all
	$(Q)$(test_env) $(PYTHON) tests/bench/shares.py

bench-ttft: all $(BUILD)/bench/queue_sim $(BUILD)/bench/turns
	$(Q)$(bench_env) $(PYTHON) tests/bench/ttft.py $(if $(QUICK),--quick) $(ARGS)

bench-fairness: all
	$(Q)$(bench_env) $(PYTHON) tests/bench/fairness.py $(ARGS)

bench-features: $(router) $(BUILD)/bench/load $(BUILD)/bench/sink
	$(Q)$(bench_env) $(PYTHON) tests/bench/features.py $(ARGS)

bench-kube: $(router)
	$(Q)$(test_env) $(PYTHON) tests/bench/kube_sync.py $(ARGS)

bench-profile: $(router) $(BUILD)/bench/load $(BUILD)/bench/sink
	$(Q)$(bench_env) $(PYTHON) tests/bench/profile.py $(ARGS)

demo: all | deps-demo
	$(Q)$(test_env) $(PYTHON) tests/demo/demo.py $(if $(ONCE),--once)

fuzz:
	$(Q)$(MAKE) --no-print-directory fuzz-run CC=clang SAN=fuzzer-no-link,address,undefined BUILD=$(BUILD)/libfuzzer S=$(S)

fuzz-run: $(fuzz_bins)
	$(Q)set -eu; for f in $(patsubst fuzz_%,%,$(notdir $(fuzz_bins))); do \
	    mkdir -p $(BUILD)/corpus/$$f; echo "fuzz $$f for $(S) s"; \
	    $(BUILD)/fuzz/fuzz_$$f -max_total_time=$(S) -verbosity=0 -print_final_stats=1 -artifact_prefix=$(BUILD)/ \
	        $(BUILD)/corpus/$$f tests/fuzz/corpus/$$f; done

format:
	$(Q)clang-format-14 -i $(c_files)

# ---- installation ----

install: all
	install -D -m 0755 $(router) $(DESTDIR)$(PREFIX)/bin/kthena-router
	install -D -m 0644 config/router.ini.example $(DESTDIR)$(PREFIX)/share/doc/kthena-router/router.ini.example

clean:
	rm -rf $(BUILD)
