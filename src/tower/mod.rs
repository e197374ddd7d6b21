//! Middleware for tower.
