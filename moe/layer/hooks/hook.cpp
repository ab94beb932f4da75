#include "moe/layer/hooks/hook.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/hooks/bf16.h"

namespace moe {
namespace {

constexpr std::array kHooks{HookRow{"none", [](Math&) { return std::unique_ptr<Hook>(); }},
                            HookRow{"bf16", make_bf16_hook}};

}  // namespace

std::unique_ptr<Hook> make_hook(std::string_view name, Math& math) {
  return find_named(kHooks, name, "hook").make(math);
}

std::vector<std::string_view> hook_names() {
  std::vector<std::string_view> names;
  for (const HookRow& row : kHooks) names.push_back(row.name);
  return names;
}

}  // namespace moe
