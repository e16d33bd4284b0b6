// The message send: find the method, then jump to it with every argument register as it was. A
// message to nil returns zero.
#if defined(__x86_64__)
#define MESSAGE(name, receiver, selector)                                 \
  asm(".globl " #name "\n.type " #name ",@function\n" #name               \
      ":\n"                                                               \
      "  test %" #receiver ", %" #receiver                                \
      "\n  jz 1f\n"                                                       \
      "  push %rbp\n  mov %rsp, %rbp\n  sub $0xc0, %rsp\n"                \
      "  mov %rdi, (%rsp)\n  mov %rsi, 8(%rsp)\n  mov %rdx, 16(%rsp)\n"   \
      "  mov %rcx, 24(%rsp)\n  mov %r8, 32(%rsp)\n  mov %r9, 40(%rsp)\n"  \
      "  mov %rax, 48(%rsp)\n"                                            \
      "  movaps %xmm0, 0x40(%rsp)\n  movaps %xmm1, 0x50(%rsp)\n"          \
      "  movaps %xmm2, 0x60(%rsp)\n  movaps %xmm3, 0x70(%rsp)\n"          \
      "  movaps %xmm4, 0x80(%rsp)\n  movaps %xmm5, 0x90(%rsp)\n"          \
      "  movaps %xmm6, 0xa0(%rsp)\n  movaps %xmm7, 0xb0(%rsp)\n"          \
      "  mov %" #receiver ", %r10\n  mov %" #selector                     \
      ", %rsi\n  mov %r10, %rdi\n"                                        \
      "  call metalemu_lookup@PLT\n  mov %rax, %r11\n"                    \
      "  mov (%rsp), %rdi\n  mov 8(%rsp), %rsi\n  mov 16(%rsp), %rdx\n"   \
      "  mov 24(%rsp), %rcx\n  mov 32(%rsp), %r8\n  mov 40(%rsp), %r9\n"  \
      "  mov 48(%rsp), %rax\n"                                            \
      "  movaps 0x40(%rsp), %xmm0\n  movaps 0x50(%rsp), %xmm1\n"          \
      "  movaps 0x60(%rsp), %xmm2\n  movaps 0x70(%rsp), %xmm3\n"          \
      "  movaps 0x80(%rsp), %xmm4\n  movaps 0x90(%rsp), %xmm5\n"          \
      "  movaps 0xa0(%rsp), %xmm6\n  movaps 0xb0(%rsp), %xmm7\n"          \
      "  leave\n  jmp *%r11\n"                                            \
      "1: xor %eax, %eax\n  xor %edx, %edx\n  pxor %xmm0, %xmm0\n  ret\n" \
      ".size " #name ", .-" #name "\n")
MESSAGE(objc_msgSend, rdi, rsi);
MESSAGE(objc_msgSend_fpret, rdi, rsi);
MESSAGE(objc_msgSend_stret, rsi, rdx);
#else
#error "write the message send for this machine"
#endif
