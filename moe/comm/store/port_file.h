#pragma once
// Lets ranks of one host find the store's port without being told: rank 0 writes it into a file that only this user can
// read. The file names its maker, so that what a killed run left behind neither hinders nor fools the next.
#include <string>

namespace moe::store {

/// Keeps rank 0's file for as long as it lives.
class PortFile {
 public:
  /// Writes the file. Throws BadInput if another run that is alive holds it, or it can't be made; `instead` is the name
  /// of what tells ranks where to meet without a file.
  PortFile(std::string path, int port, const std::string& instead = "rendezvous");
  ~PortFile();
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

 private:
  const std::string path_;
};

/// Waits, on the other ranks, for a file made by a living process of this user, and returns its port. Throws
/// RankFailure after `timeout_s`.
int wait_for_port(const std::string& path, double timeout_s);

}  // namespace moe::store
