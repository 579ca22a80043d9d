// Two devices whose memory is the host's, for tests without a GPU. The CPU's kernels do all work in
// place, so results are real numbers; what a GPU would refuse is refused.
//
// - An operation on tensors of two devices fails; only numbers (0 dimensions) of the host may join.
// - New memory is all ones in bits: NaN, and -1 in integers.
// - What a host would wait for is told to `listener`, and fails while `capturing`.

// torch/extension.h would take twice as long to compile.
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace {

using at::Tensor;
constexpr auto OURS = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex COUNT = 2;
constexpr size_t HEADER = 64;  // bytes before a block, for its size
thread_local c10::DeviceIndex current = 0;

// -- what a host waits for ----------------------------------------------------------------------

std::atomic<bool> capturing{false}, listening{false};
std::atomic<int64_t> launches{0}, in_use{0}, peak{0};
PyObject* listener = nullptr;

void tell(const std::string& what) {
  if (listening) {
    pybind11::gil_scoped_acquire gil;
    if (PyObject* done = PyObject_CallFunction(listener, "s", what.c_str())) Py_DECREF(done);
    else throw pybind11::error_already_set();
  }
  TORCH_CHECK(!capturing, "a stream that is capturing does not permit: ", what);
}

// -- memory -------------------------------------------------------------------------------------

void nothing(void*) {}

void give_back(void* data) {
  void* block = static_cast<char*>(data) - HEADER;
  in_use -= *static_cast<int64_t*>(block);
  c10::free_cpu(block);
}

struct OfDevice final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    const c10::Device device(OURS, current);
    if (size == 0) return {nullptr, nullptr, &nothing, device};
    auto* block = static_cast<char*>(c10::alloc_cpu(size + HEADER));
    *reinterpret_cast<int64_t*>(block) = size;
    if ((in_use += size) > peak) peak = int64_t(in_use);
    std::memset(block + HEADER, 0xFF, size);
    return {block + HEADER, block + HEADER, &give_back, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};
OfDevice memory;

struct Pinned final : c10::Allocator {
  std::mutex lock;
  std::unordered_set<const void*> known;
  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
  bool has(const void* data) {
    std::lock_guard<std::mutex> held(lock);
    return known.count(data) > 0;
  }
};
Pinned& pinned = *new Pinned;  // never destroyed: tensors may outlive the module

void unpin(void* data) {
  {
    std::lock_guard<std::mutex> held(pinned.lock);
    pinned.known.erase(data);
  }
  c10::free_cpu(data);
}
c10::DeleterFnPtr Pinned::raw_deleter() const { return &unpin; }
c10::DataPtr Pinned::allocate(size_t size) {
  if (size == 0) return {nullptr, nullptr, &nothing, c10::Device(at::kCPU)};
  void* data = c10::alloc_cpu(size);
  std::lock_guard<std::mutex> held(lock);
  known.insert(data);
  return {data, data, &unpin, c10::Device(at::kCPU)};
}

// -- devices and streams --------------------------------------------------------------------------

c10::DeviceIndex exchange(c10::DeviceIndex index) {
  const auto before = current;
  if (index >= 0) current = index;
  return before;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return COUNT; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { exchange(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return exchange(index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex i) const override { return exchange(i); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }
  bool isPinnedPtr(const void* data) const override { return pinned.has(data); }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  using Device = c10::Device;
  using Stream = c10::Stream;
  static Stream only(Device device) { return Stream(Stream::DEFAULT, device); }
  c10::DeviceType type() const override { return OURS; }
  Device exchangeDevice(Device d) const override { return Device(OURS, exchange(d.index())); }
  Device getDevice() const override { return Device(OURS, current); }
  void setDevice(Device d) const override { exchange(d.index()); }
  void uncheckedSetDevice(Device d) const noexcept override { exchange(d.index()); }
  Stream getStream(Device d) const override { return only(d); }
  Stream getDefaultStream(Device d) const override { return only(d); }
  Stream getNewStream(Device d, int) const override { return only(d); }
  Stream exchangeStream(Stream s) const override { return only(s.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return COUNT; }
  void record(void**, const Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// -- two views of one memory ------------------------------------------------------------------------

bool ours(const Tensor& x) { return x.defined() && x.device().type() == OURS; }

Tensor seen_from(const Tensor& x, c10::Device device) {
  auto* kept = new c10::Storage(x.storage());
  auto drop = [](void* storage) { delete static_cast<c10::Storage*>(storage); };
  const bool host = device.is_cpu();
  c10::Allocator* owner = host ? c10::GetAllocator(at::kCPU) : &memory;
  c10::Storage storage(c10::Storage::use_byte_size_t(), kept->nbytes(),
                       c10::DataPtr(kept->mutable_data(), kept, drop, device), owner, !host);
  const auto key = host ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  auto y = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                    x.dtype());
  y.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  return y;
}
Tensor to_host(const Tensor& x) { return ours(x) ? seen_from(x, c10::Device(at::kCPU)) : x; }
Tensor to_ours(const Tensor& x, c10::DeviceIndex index) {
  return x.defined() && x.device().is_cpu() ? seen_from(x, c10::Device(OURS, index)) : x;
}

const Tensor& grown(const Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  const size_t wanted = c10::multiply_integers(size) * x.dtype().itemsize();
  auto* storage = x.storage().unsafeGetStorageImpl();
  if (wanted > storage->nbytes()) {
    auto data = memory.allocate(wanted);
    if (storage->nbytes()) std::memcpy(data.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(data));
    storage->set_nbytes(wanted);
  }
  x.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return x;
}

// -- every operation that has no kernel below ---------------------------------------------------------

// The shape of their results depends on values, so a host waits for these.
const std::set<std::string> BY_VALUE = {
    "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::_unique",
    "aten::unique_consecutive", "aten::bincount", "aten::equal", "aten::multinomial",
    "aten::linalg_eigh", "aten::_linalg_eigh", "aten::_linalg_svd", "aten::linalg_qr",
};
// They take indices from the host, which are copied first; a mask as an index is counted first.
const std::set<std::string> BY_INDEX = {
    "aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_",
    "aten::_unsafe_index", "aten::_unsafe_index_put",
};

struct Call {
  struct Given { Tensor host, own; bool written; };
  std::vector<Given> given;
  c10::DeviceIndex device = -1;
  bool hosts = false, mixed = false, masked = false;

  Tensor in(const Tensor& x, bool written = false) {
    if (!x.defined()) return x;
    if (!ours(x)) {
      hosts = hosts || x.dim() > 0;
      return x;
    }
    mixed = mixed || (device >= 0 && device != x.device().index());
    device = x.device().index();
    const bool fresh = written && x.numel() == 0 && x.dim() == 1;  // an `out` to be resized
    given.push_back({fresh ? at::empty({0}, at::TensorOptions().dtype(x.dtype())) : to_host(x), x, written});
    return given.back().host;
  }
  Tensor index(const Tensor& x) {
    masked = masked || (ours(x) && (x.scalar_type() == at::kBool || x.scalar_type() == at::kByte));
    return in(x);
  }
  Tensor out(const Tensor& y) const {
    if (!y.defined() || !y.device().is_cpu()) return y;
    for (auto& x : given)
      if (y.unsafeGetTensorImpl() == x.host.unsafeGetTensorImpl()) return x.own;
    for (auto& x : given) {
      if (!y.storage().is_alias_of(x.host.storage())) continue;
      auto view = at::detail::make_tensor<c10::TensorImpl>(
          c10::Storage(x.own.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), y.dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(y.sizes(), y.strides(), y.storage_offset());
      return view;
    }
    return to_ours(y, device < 0 ? current : device);
  }
};

template <class List, class F>
c10::IValue each(const List& xs, F change) {
  c10::List<Tensor> list;
  for (const Tensor& x : xs) list.push_back(change(x));
  return list;
}

void by_the_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& name = schema.name();
  const auto first = stack->size() - schema.arguments().size();
  Call call;
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    auto& value = (*stack)[first + i];
    const auto* alias = schema.arguments()[i].alias_info();
    const bool written = alias && alias->isWrite();
    if (value.isTensor()) {
      value = call.in(value.toTensor(), written);
    } else if (value.isTensorList()) {
      value = each(value.toTensorVector(), [&](const Tensor& x) { return call.in(x, written); });
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const auto& x : value.toOptionalTensorVector())
        list.push_back(x ? std::optional<Tensor>(call.index(*x)) : std::nullopt);
      value = list;
    } else if (value.isDevice() && value.toDevice().type() == OURS) {
      call.device = std::max<c10::DeviceIndex>(value.toDevice().index(), 0);
      value = c10::Device(at::kCPU);
    }
  }
  if (call.device >= 0 && !call.given.empty() && (call.hosts || call.mixed)) {
    TORCH_CHECK(!call.mixed && BY_INDEX.count(name),
                "Expected all tensors to be on the same device, but found at least two: ", name);
    tell("indices from the host");
  }
  if (BY_VALUE.count(name) || (BY_INDEX.count(name) && call.masked)) tell("a shape, " + name);
  bool view = false;
  for (const auto& result : schema.returns())
    view = view || (result.alias_info() && !result.alias_info()->isWrite());
  launches += !view;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto& x : call.given) {
    if (!x.written || x.host.sizes() == x.own.sizes()) continue;
    grown(x.own, x.host.sizes(), std::nullopt);
    to_host(x.own).copy_(x.host);
  }
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); i++) {
    auto& value = (*stack)[i];
    if (value.isTensor()) value = call.out(value.toTensor());
    else if (value.isTensorList())
      value = each(value.toTensorVector(), [&](const Tensor& y) { return call.out(y); });
  }
}

// -- operations that a device must have itself --------------------------------------------------------

template <class F>
Tensor on(std::optional<at::Device> device, F make) {
  const auto before = exchange(device ? device->index() : -1);
  Tensor made = make(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1));
  current = before;
  return made;
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  return on(device, [&](auto keys) {
    return at::detail::empty_generic(size, &memory, keys, c10::dtype_or_default(dtype), format);
  });
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  return on(device, [&](auto keys) {
    return at::detail::empty_strided_generic(size, stride, &memory, keys,
                                             c10::dtype_or_default(dtype));
  });
}

Tensor copy_from(const Tensor& from, const Tensor& into, bool non_blocking) {
  if (ours(from) && !ours(into)) tell("a read");
  if (!ours(from) && ours(into)) {
    if (!non_blocking || !from.is_pinned()) tell("an upload");
    TORCH_CHECK(!capturing, "a graph would copy from this address of the host for ever");
  }
  launches++;
  to_host(into).copy_(to_host(from));
  return into;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& into) {
  ours(into) ? grown(into, from.sizes(), std::nullopt) : into.resize_(from.sizes());
  return copy_from(from, into, false);
}

at::Scalar item(const Tensor& x) {
  tell("a number");
  return to_host(x).item();
}

Tensor convolution(const Tensor& x, const Tensor& w, const std::optional<Tensor>& b,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                   bool transposed, at::IntArrayRef more, int64_t groups) {
  Call call;
  const auto own_x = call.in(x), own_w = call.in(w);
  const auto own_b = b && b->defined() ? std::optional<Tensor>(call.in(*b)) : std::nullopt;
  TORCH_CHECK(!call.hosts && !call.mixed, "Expected all tensors to be on the same device");
  launches++;
  at::AutoDispatchBelowAutograd below;
  return call.out(at::convolution(own_x, own_w, own_b, stride, padding, dilation, transposed, more, groups));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& g, const Tensor& x, const Tensor& w, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef more,
    int64_t groups, std::array<bool, 3> wanted) {
  Call call;
  const std::vector<int64_t> bias{transposed ? w.size(1) * groups : w.size(0)};
  launches++;
  at::AutoDispatchBelowAutograd below;
  auto [a, b, c] = at::convolution_backward(call.in(g), call.in(x), call.in(w),
      at::OptionalIntArrayRef(bias), stride, padding, dilation, transposed, more, groups, wanted);
  return {call.out(a), call.out(b), call.out(c)};
}

Tensor& set_storage(Tensor& x, at::Storage source, int64_t offset, at::IntArrayRef size,
                    at::IntArrayRef stride) {
  x.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  x.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return x;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&by_the_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<Tensor (*)(const Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("view.dtype", &at::native::view_dtype);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("resize_", &grown);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &item);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
}

std::string content(const Tensor& x) {
  return {static_cast<const char*>(x.storage().data()), x.storage().nbytes()};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  c10::SetAllocator(OURS, &memory);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  m.def("listen", [](pybind11::object call) {
    Py_XDECREF(listener);
    listener = call.is_none() ? nullptr : call.inc_ref().ptr();
    listening = listener != nullptr;
  });
  m.def("capturing", [](bool on) { capturing = on; });
  m.def("exchange", [](int index) { return int(exchange(index)); });
  m.def("current", [] { return int(current); });
  m.def("in_use", [] { return int64_t(in_use); });
  m.def("peak", [] { return int64_t(peak); });
  m.def("forget_peak", [] { peak = int64_t(in_use); });
  m.def("launches", [] { return int64_t(launches); });
  m.def("memory_of", [](const Tensor& x) {
    return reinterpret_cast<int64_t>(x.storage().unsafeGetStorageImpl());
  });
  m.def("content", [](const Tensor& x) { return pybind11::bytes(content(x)); });
  m.def("fill", [](const Tensor& x, const std::string& bytes) {
    std::memcpy(x.storage().mutable_data(), bytes.data(), bytes.size());
  });
  m.def("forget", [](const Tensor& x) {
    std::memset(x.storage().mutable_data(), 0xFF, x.storage().nbytes());
  });
}
