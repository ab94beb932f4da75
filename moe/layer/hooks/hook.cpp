#include "moe/layer/hooks/hook.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/hooks/bf16.h"
#include "moe/plan/parts.h"

namespace moe {
namespace {

constexpr std::array kHooks{HookRow{"none", [](Math&) { return std::unique_ptr<Hook>(); }},
                            HookRow{"bf16", make_bf16_hook}};
static_assert(same_names(kHooks, kHookParts), "a hook has a row here and one in moe/plan/parts.h");

}  // namespace

std::unique_ptr<Hook> make_hook(std::string_view name, Math& math) {
  return find_named(kHooks, name, "hook").make(math);
}

std::vector<std::string_view> hook_names() { return row_names(kHooks); }

}  // namespace moe
