#pragma once
// Keeps a device idle while the host issues what is to be timed, so that a sample holds the device's time alone. A
// stream that is a thread needs none: it is issued to faster than it works.
#include <memory>

#include "moe/device/stream.h"

namespace moe::measure {

class StartGate {
 public:
  explicit StartGate(Stream& lane) : lane_(lane), closed_(lane.make_event()) {}

  /// Lets nothing run that the lane is given from now on until the time that `launches` take to be issued has passed.
  /// Time alone opens it, whatever the host does. Does nothing where launch() does not call its work at once.
  void close(int launches);
  /// Closes until the moment at which `first` opens, which was closed before on another lane of the device.
  void close_with(StartGate& first);

  /// Returns how long a gate stays closed: 0.5 ms and 50 us a launch, and at most 20 ms, since a device takes no more
  /// than some hundred launches ahead.
  static double seconds_for(int launches);

 private:
  Stream& lane_;
  std::unique_ptr<Event> closed_;
  double seconds_ = 0;
};

}  // namespace moe::measure
