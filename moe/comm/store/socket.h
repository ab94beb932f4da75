#pragma once
// The socket functions that the store and the ranks need.
#include <string>
#include <utility>
#include <vector>

#include "moe/comm/store/store.h"

namespace moe::store {

/// Owns a file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number = -1) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

struct Listener {
  FileDescriptor socket;
  int port = 0;
};

/// Listens on `address` alone; port 0: any free one. Throws BadInput naming the address and why.
Listener listen_on(const Address& address);
/// Waits until something accepts connections at `address`; returns false if nothing has when now_s() is `deadline_s`.
bool wait_for_listener(const Address& address, double deadline_s);

/// A network interface that is up and has an address.
struct Interface {
  std::string name, address;
  bool loopback = false;
};
/// Returns the interfaces, IPv4 addresses before IPv6 ones; link-local IPv6 ones are left out.
std::vector<Interface> interfaces();
/// Returns the address of this machine's loopback: IPv6's only if there is no IPv4 one.
std::string loopback_address();
/// Returns the local address of the route to `address`; empty if there is no route.
std::string address_towards(const Address& address);

}  // namespace moe::store
