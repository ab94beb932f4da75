#pragma once
// What sleeping to a moment takes on Linux.
namespace moe::cpu {

// A core that idles needs 20 to 110 us to be running again (measured, 2-core virtual machine);
// spinning for longer takes it from other lanes without gain.
inline constexpr double kSpinS = 100e-6;

/// Of the calling thread: Linux lets a thread's timers slip by 50 us to wake several at once, unless told not to.
void be_punctual();

}  // namespace moe::cpu
