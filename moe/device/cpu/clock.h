#pragma once
// Constants and settings for sleeping to a moment on Linux.
namespace moe::cpu {

// How long to spin before a moment: a core that idles needs 20 to 110 us to be running again (measured, 2-core virtual
// machine); spinning for longer takes it from other lanes without gain.
inline constexpr double kSpinS = 100e-6;

/// Sets the calling thread's timer slack to 1 ns, so that Linux does not delay its wake-ups (by default up to 50 us).
void set_minimal_timer_slack();

}  // namespace moe::cpu
