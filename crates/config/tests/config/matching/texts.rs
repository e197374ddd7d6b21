//! The two sample files of the specification, in the form that Envoy's service reads.

pub(crate) const EDGE: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10 }
  - key: remote_address
    value: 203.0.113.7
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: remote_address
    value: 198.51.100.20          # allow-listed: no limit, no children
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: { unit: Minute, requests_per_unit: 5 }
      - key: remote_address
        value: 198.51.100.20
        rate_limit: { unlimited: true }
  - key: path
    rate_limit: { unit: HOUR, requests_per_unit: 1000 }
";

pub(crate) const FILES: &str = "
domain: files
descriptors:
  - key: path
    value: /v1/public
    rate_limit: { unit: minute, requests_per_unit: 100 }
  - key: path
    value: /v1/*
    share_threshold: true
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: path
    value: /v1/admin/*            # never reached: /v1/* is declared first
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: path
    value: /*/export/*
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: tenant
    value_to_metric: true
    descriptors:
      - key: method
        rate_limit: { unit: second, requests_per_unit: 50 }
      - key: method
        value: DELETE
        shadow_mode: true
        rate_limit: { unit: minute, requests_per_unit: 2 }
";
