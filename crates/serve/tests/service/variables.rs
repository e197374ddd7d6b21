//! Variables of Envoy's Go service, as flags.

use tollgate_serve::variables::Translation;

/// Reads variables such as `A=1; B=2`.
fn of(variables: &str) -> Result<Translation, String> {
    let pairs = variables.split("; ").filter_map(|variable| variable.split_once('='));
    Translation::of(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn line(variables: &str) -> String {
    let flags = of(variables).unwrap().flags;
    flags.iter().flat_map(|flag| flag.args.iter()).cloned().collect::<Vec<_>>().join(" ")
}

fn warnings(variables: &str) -> Vec<String> {
    of(variables).unwrap().warnings
}

#[test]
fn go_variables_become_flags() {
    for (variables, flags) in [
        ("", ""),
        ("PORT=80", "--http 0.0.0.0:80"),
        ("GRPC_HOST=::1", "--grpc [::1]:8081"),
        ("GRPC_UDS=/s; GRPC_PORT=1", "--grpc-socket /s"),
        ("DEBUG_PORT=1", "--debug 127.0.0.1:1"),
        ("RUNTIME_ROOT=/r", "/r/config"),
        ("RUNTIME_SUBDIRECTORY=s", "/srv/runtime_data/current/s/config"),
        ("SHADOW_MODE=T; QUOTA_MODE=0", "--shadow"),
        ("QUOTA_MODE=true", "--quota"),
        ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=false", "--charging count-first"),
        ("LOG_LEVEL=WARNING; LOG_FORMAT=JSON", "--log warn --log-format json"),
        ("REDIS_URL=/r.sock", "--redis unix:///r.sock"),
        ("REDIS_URL=unix:///r.sock; REDIS_AUTH=p", "--redis unix:///r.sock?user=default&pass=p"),
        (
            "REDIS_URL=a:1,b:2; REDIS_TYPE=cluster; REDIS_AUTH=u:p@",
            "--redis redis://u:p%40@a:1,redis://u:p%40@b:2",
        ),
        ("REDIS_URL=a:1; REDIS_TLS=true; REDIS_SOCKET_TYPE=tcp", "--redis rediss://a:1"),
        ("REDIS_URL=redis://a:1; REDIS_TLS=true; REDIS_AUTH=p", "--redis rediss://:p@a:1"),
        ("REDIS_URL=rediss://u:q@a:1; REDIS_TLS=false; REDIS_AUTH=p", "--redis rediss://u:q@a:1"),
        (
            "REDIS_URL=main,a:1, b:2; REDIS_TYPE=SENTINEL; REDIS_AUTH=u:p/",
            "--redis redis-sentinel://u:p%2F@a:1,b:2/main",
        ),
        (
            "REDIS_URL=main,a:1; REDIS_TYPE=sentinel; REDIS_SENTINEL_AUTH=x; REDIS_TLS=true; CACHE_KEY_PREFIX=shop:",
            "--redis rediss-sentinel://a:1/main?auth=:x --redis-prefix shop:",
        ),
        ("USE_PROMETHEUS=true; PROMETHEUS_ADDR=:19001", "--metrics :19001 --go-metrics"),
        (
            "USE_PROMETHEUS=1; PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=true",
            "--metrics :9090 --go-metrics --go-metrics-milliseconds",
        ),
        (
            "LIMIT_RESPONSE_HEADERS_ENABLED=true; LIMIT_RESET_HEADER=X",
            "--limit-headers ratelimit --limit-header-names RateLimit-Limit,RateLimit-Remaining,X",
        ),
    ] {
        assert_eq!(line(variables), flags, "{variables}");
    }
}

// G139
#[test]
fn variables_of_a_control_plane_become_flags() {
    let tls = "; CONFIG_GRPC_XDS_SERVER_USE_TLS=true; CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/c; CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/k; \
               CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/a; CONFIG_GRPC_XDS_SERVER_TLS_SAN=eg";
    // A control plane has the place of files, so the last one has no effect.
    let others = "; CONFIG_GRPC_XDS_SERVER_URL=eg:1; CONFIG_GRPC_XDS_NODE_ID=n; CONFIG_GRPC_XDS_NODE_METADATA=a=b,c:d; \
                  CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=h:v; CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=4s; \
                  XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=1s; XDS_CLIENT_BACKOFF_MAX_INTERVAL=2s; \
                  XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=99; XDS_CLIENT_BACKOFF_RANDOM_FACTOR=0.3; RUNTIME_ROOT=/data";
    let local = "--xds localhost:18000";
    for (more, flags) in [
        ("", local.to_owned()),
        (tls, format!("{local} --xds-tls --xds-cert /c --xds-key /k --xds-ca /a --xds-san eg")),
        (
            others,
            "--xds eg:1 --xds-node-id n --xds-node-metadata a=b,c:d --xds-headers h:v --xds-retry 4s --xds-pause 1s \
             --xds-max-pause 2s --xds-max-message 99 --xds-spread 0.3"
                .to_owned(),
        ),
        ("; XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=0", local.to_owned()),
        ("; XDS_CLIENT_BACKOFF_JITTER=false", format!("{local} --xds-spread 0")),
    ] {
        let variables = format!("CONFIG_TYPE=GRPC_XDS_SOTW{more}");
        assert_eq!((line(&variables), warnings(&variables)), (flags, Vec::new()));
    }
    // Without CONFIG_TYPE, they have no effect.
    let warning = "these variables have no effect here: CONFIG_GRPC_XDS_NODE_ID, XDS_CLIENT_NEW";
    assert_eq!(warnings("CONFIG_GRPC_XDS_NODE_ID=n; XDS_CLIENT_NEW=x"), [warning]);
}

#[test]
fn unusable_go_variables_are_errors() {
    for (variables, part) in [
        ("BACKEND_TYPE=memcache", "memcache"),
        ("CONFIG_TYPE=GRPC_XDS_DELTA", "expected FILE or GRPC_XDS_SOTW"),
        ("CONFIG_TYPE=GRPC_XDS_SOTW; XDS_CLIENT_BACKOFF_JITTER=x", "XDS_CLIENT_BACKOFF_JITTER"),
        ("SHADOW_MODE=yes", "SHADOW_MODE"),
        ("GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT"),
        ("REDIS_URL=a; REDIS_TYPE=SENTINEL", "REDIS_URL=NAME,HOST:PORT"),
        ("REDIS_TYPE=sentinel", "REDIS_URL=NAME,HOST:PORT"),
        ("REDIS_URL=a:1,b:2; REDIS_TYPE=sentinel", "REDIS_URL=NAME,HOST:PORT"),
        ("REDIS_URL=a; REDIS_TYPE=RING", "expected SINGLE, CLUSTER or SENTINEL"),
        ("REDIS_URL=a; REDIS_SOCKET_TYPE=udp", "REDIS_SOCKET_TYPE=udp: expected tcp or unix"),
        ("REDIS_URL=a; REDIS_TIMEOUT=x", "REDIS_TIMEOUT: "),
    ] {
        assert!(of(variables).unwrap_err().contains(part), "{variables}");
    }
}

#[test]
fn one_warning_names_unused_variables() {
    for (variables, unused) in [
        (
            "USE_STATSD=true; TRACING_SAMPLING_RATE=x; MEMCACHE_TLS=x; HOME=x",
            "MEMCACHE_TLS, TRACING_SAMPLING_RATE, USE_STATSD",
        ),
        // Families that newer versions of the Go service add to.
        ("REDIS_CLUSTER_PIPELINE_PARALLELISM=true; REDIS_URL=a", "REDIS_CLUSTER_PIPELINE_PARALLELISM"),
        (
            "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM=true; REDIS_URL=a",
            "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
        ),
        ("REDIS_POOL_SIZE=true; REDIS_URL=a", "REDIS_POOL_SIZE"),
        ("REDIS_PERSECOND=true; REDIS_URL=a", "REDIS_PERSECOND"),
        ("PROMETHEUS_MAPPER_YAML=true", "PROMETHEUS_MAPPER_YAML"),
        ("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=true", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"),
        ("CACHE_KEY_PREFIX=x; REDIS_SENTINEL_AUTH=x", "CACHE_KEY_PREFIX, REDIS_SENTINEL_AUTH"),
        ("REDIS_SENTINEL_AUTH=x; REDIS_URL=a", "REDIS_SENTINEL_AUTH"),
        // Without an address, a password has no effect. Kubernetes adds the others for a service called `redis`.
        (
            "REDIS_AUTH=x; REDIS_PORT=tcp://10.0.0.1:6379; REDIS_SERVICE_HOST=10.0.0.1; REDIS_PORT_6379_TCP=x",
            "REDIS_AUTH",
        ),
        // With an address, the reason is in a warning of its own.
        ("REDIS_STARTUP_RETRIES=5", "REDIS_STARTUP_RETRIES"),
        ("EXPIRATION_JITTER_MAX_SECONDS=300", "EXPIRATION_JITTER_MAX_SECONDS"),
    ] {
        let warning = format!("these variables have no effect here: {unused}");
        assert_eq!(warnings(variables), [warning], "{variables}");
    }
    for (name, value, part) in [
        ("REDIS_STARTUP_RETRIES", "5", "starts without waiting for Redis"),
        ("EXPIRATION_JITTER_MAX_SECONDS", "300", "expires when its client owes nothing"),
    ] {
        let warnings = warnings(&format!("{name}={value}; REDIS_URL=a"));
        assert!(warnings.len() == 1 && warnings[0].starts_with(name), "{warnings:?}");
        assert!(warnings[0].contains(part), "{warnings:?}");
    }
    for used in [
        "USE_STATSD=false",
        "EXPIRATION_JITTER_MAX_SECONDS=0; REDIS_URL=a",
        "REDIS_URL=a; REDIS_AUTH=x; REDIS_TYPE=SINGLE; REDIS_TIMEOUT=5ms",
    ] {
        assert_eq!(warnings(used), [""; 0], "{used}");
    }
}

/// Cause: the address was split at its commas and signs `@`, and a password may contain them. Symptom: parts of it were shown.
#[test]
fn secrets_are_not_shown() {
    let secret = "zq1,zq2@zq3:4/zq5?zq6#zq7%zq8";
    for (variables, shown) in [
        ("REDIS_URL=redis://a:1,b:2", None),
        ("REDIS_URL=unix:///r.sock", None),
        ("REDIS_URL=redis://u:SECRET@a:1", Some("***")),
        ("REDIS_URL=redis://a:1,redis://:SECRET@b:2; REDIS_AUTH=p", Some("***")),
        ("REDIS_URL=unix:///r?pass=SECRET", Some("***")),
        ("REDIS_URL=u:zq1,zq2@a:1", Some("***")),
        ("REDIS_URL=a:1; REDIS_AUTH=SECRET", Some("redis://:***@a:1")),
        (
            "REDIS_URL=a:1,b:2; REDIS_TYPE=cluster; REDIS_AUTH=SECRET",
            Some("redis://:***@a:1,redis://:***@b:2"),
        ),
        ("REDIS_URL=/r; REDIS_AUTH=SECRET", Some("unix:///r?user=default&pass=***")),
        (
            "REDIS_URL=main,a:1,b:2; REDIS_TYPE=sentinel; REDIS_AUTH=SECRET; REDIS_SENTINEL_AUTH=SECRET",
            Some("redis-sentinel://:***@a:1,b:2/main?auth=:***"),
        ),
    ] {
        let flags = of(&variables.replace("SECRET", secret)).unwrap().flags;
        let redis = flags.into_iter().find(|flag| flag.id == "redis").unwrap();
        assert_eq!(redis.shown.as_deref(), shown, "{variables}");
    }
    let headers = of("CONFIG_TYPE=GRPC_XDS_SOTW; CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a=zq");
    let headers = headers.unwrap().flags;
    assert_eq!(headers.iter().filter_map(|flag| flag.shown.as_deref()).collect::<Vec<_>>(), ["***"]);
}
