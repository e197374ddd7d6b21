//! The formats that are recognised by themselves, one entry each. The common log format, JSON, W3C logs and tables have
//! readers of their own.

use super::Layout;

/// A format that servers write without being told to.
struct KnownFormat {
    /// Its name, which `--log-format` takes.
    name: &'static str,
    /// The last field that every line has. Lines may have more.
    least: &'static str,
    /// The server's own string, or one in nginx's language with the names of the format's documentation.
    layout: &'static str,
}

/// More specific formats first.
///
/// - ingress-nginx: <https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/log-format/>
/// - Traefik: <https://doc.traefik.io/traefik/observe/logs-and-access-logs/>
/// - Envoy: <https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage>
/// - Istio: <https://istio.io/latest/docs/tasks/observability/logs/access-log/>
/// - HAProxy: <https://docs.haproxy.org/3.0/configuration.html#8.2.3>
/// - AWS: <https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html>,
///   <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/access-log-collection.html>,
///   <https://docs.aws.amazon.com/AmazonS3/latest/userguide/LogFormat.html>
/// - Squid: <https://wiki.squid-cache.org/Features/LogFormat>
const KNOWN: &[KnownFormat] = &[
    KnownFormat {
        name: "ingress-nginx-0.26",
        least: "upstream_status",
        layout: r#"$remote_addr - [$the_real_ip] - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $req_id"#,
    },
    KnownFormat {
        name: "ingress-nginx-0.20",
        least: "upstream_status",
        layout: r#"$remote_addr - [$the_real_ip] - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_length $request_time [$proxy_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $req_id"#,
    },
    KnownFormat {
        name: "ingress-nginx",
        least: "upstream_status",
        layout: r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $req_id"#,
    },
    KnownFormat {
        name: "traefik",
        least: "duration",
        layout: r#"$remote_addr - $remote_user [$time_local] "$request" $status $bytes "$http_referer" "$http_user_agent" $requests "$router" "$server_url" ${duration}ms"#,
    },
    KnownFormat {
        name: "istio",
        least: "%UPSTREAM_HOST%",
        layout: r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%"#,
    },
    KnownFormat {
        name: "envoy",
        least: "%UPSTREAM_HOST%",
        layout: r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%""#,
    },
    KnownFormat {
        name: "haproxy",
        least: "request",
        layout: r#"$client_ip:$client_port [$accept_date] $frontend_name $backend_name/$server_name_in_backend $tr/$tw/$tc/$tr_response/$ta $status $bytes_read $captured_request_cookie $captured_response_cookie $termination_state $actconn/$feconn/$beconn/$srv_conn/$retries $srv_queue/$backend_queue ${captured_headers}"$request""#,
    },
    KnownFormat {
        name: "aws-alb",
        least: "target_group_arn",
        layout: r#"$type $time $elb ${client:port} ${target:port} $request_processing_time $target_processing_time $response_processing_time $elb_status_code $target_status_code $received_bytes $sent_bytes "$request" "$user_agent" $ssl_cipher $ssl_protocol $target_group_arn "$trace_id" "$domain_name" "$chosen_cert_arn" $matched_rule_priority $request_creation_time "$actions_executed" "$redirect_url" "$error_reason" "${target:port_list}" "$target_status_code_list" "$classification" "$classification_reason" $conn_trace_id"#,
    },
    KnownFormat {
        name: "aws-elb",
        least: "request",
        layout: r#"$time $elb ${client:port} ${backend:port} $request_processing_time $backend_processing_time $response_processing_time $elb_status_code $backend_status_code $received_bytes $sent_bytes "$request" "$user_agent" $ssl_cipher $ssl_protocol"#,
    },
    KnownFormat {
        name: "s3",
        least: "user_agent",
        layout: r#"$bucket_owner $bucket [$time_local] $remote_ip $requester $request_id $operation $key "$request" $status $error_code $bytes_sent $object_size $total_time $turn_around_time "$http_referer" "$user_agent" $version_id $host_id $signature_version $cipher_suite $authentication_type $host_header $tls_version $access_point_arn $acl_required"#,
    },
    KnownFormat {
        name: "squid",
        least: "type",
        layout: "$ts $elapsed $client_address $code/$status $bytes $request_method $url $user $peerstatus/$peerhost $type",
    },
];

/// The nicknames of Apache's own configuration for the common log format and its variants, and nginx's format `main`. One
/// reader reads them all.
pub const COMMON: [&str; 6] =
    ["common", "combined", "vhost_common", "vhost_combined", "combinedio", "nginx-main"];

/// Returns the names of the formats.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMON.into_iter().chain(KNOWN.iter().map(|known| known.name))
}

/// Returns the layouts of the formats. The strings of the table are correct, so none is left out.
pub fn all() -> impl Iterator<Item = Layout> {
    let layout = |known: &KnownFormat| {
        Some(Layout::compile(known.name, known.layout).ok()?.with_open_end(known.least))
    };
    KNOWN.iter().filter_map(layout)
}
